"""Event loop, recorder and sampler threads, locks, and the identity of a job's owner."""
