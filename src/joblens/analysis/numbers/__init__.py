"""Usage, rates, profiles and statistics from samples.

No rate is stored: samples hold counters since the job's start. Peak memory contains no file pages, so a
cold and a warm page cache give the same number; the kernel's own peak is the upper bound beside it. Samples
of a running job wait packed, a few hundred chosen so that peaks, counters and means stay right."""
