"""Charts of jobs and runs: one module per subject, one per output format."""
