"""Usage, rates, profiles and statistics from samples.

No rate is stored: samples hold counters since the job's start. Peak memory excludes file pages, so that it
does not depend on the page cache; the kernel's peak is the upper bound. Samples of a running job are held
packed, a selection of a few hundred that preserves peaks, counters and means."""
