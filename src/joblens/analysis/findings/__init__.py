"""Findings: why a job ended, what slowed it down, what it did not use."""
