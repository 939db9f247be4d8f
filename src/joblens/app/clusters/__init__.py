"""Slurm and Ray as engines of runs; workers that a cluster starts."""
