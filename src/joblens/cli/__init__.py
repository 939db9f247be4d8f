"""Command line: parses, calls `app`, shows a view."""
