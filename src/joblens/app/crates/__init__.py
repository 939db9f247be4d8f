"""RO-Crates of jobs and runs."""
