"""One partition on a worker: stages, operators, checkpoints, restoring."""
