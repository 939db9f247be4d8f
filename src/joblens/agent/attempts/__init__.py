"""Attempts of jobs as runs and workers start them: in slots or in sessions; jobs in the foreground."""
