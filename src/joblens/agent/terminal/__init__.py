"""Terminals and streams of a job: pseudo-terminal, keys, output files.

Jobs write to their output files themselves. A file beyond its limit is capped by punching holes while the job
appends: the first and the last part stay, without a pump."""
