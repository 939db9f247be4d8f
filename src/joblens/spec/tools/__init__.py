"""Tool files and task lists, parsed into values; the built-in tools."""
