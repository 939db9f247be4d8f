"""Terminals and streams of a job: pseudo-terminal, keys, output files."""
