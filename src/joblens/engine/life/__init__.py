"""Life cycles decided purely: a job's end, recovery of a run."""
