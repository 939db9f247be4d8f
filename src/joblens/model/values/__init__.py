"""Units, ids and other small values."""
