"""Resident launchers in control groups of their own, for jobs without limits."""
