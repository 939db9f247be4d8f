"""Slurm's text and accounting, read and turned into records and efficiency."""
