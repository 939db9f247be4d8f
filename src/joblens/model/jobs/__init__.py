"""A job, its samples, its record."""
