"""Progress of runs."""
