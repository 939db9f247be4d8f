"""Terminals and streams of a job: pseudo-terminal, keys, live line, output files."""
