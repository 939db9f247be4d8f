"""Charts of jobs and runs: the model (`chart`), one module per subject, and one per output format."""
