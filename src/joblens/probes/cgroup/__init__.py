"""Numbers from control groups."""
