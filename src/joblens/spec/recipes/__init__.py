"""Recipe files, parsed into values."""
