"""Recipe files into values."""
