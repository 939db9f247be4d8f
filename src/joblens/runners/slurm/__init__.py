"""Slurm as the cluster of a run."""
