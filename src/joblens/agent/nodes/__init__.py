"""Jobs that run on several nodes."""
