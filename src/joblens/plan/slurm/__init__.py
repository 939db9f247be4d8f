"""Requests to Slurm: terms, packing, scripts."""
