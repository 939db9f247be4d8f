"""Ray as the cluster of a run."""
