"""Tool and task files into values; the built-in tools."""
