"""Attempts of jobs as runs and workers start them: in slots, sessions or the foreground."""
