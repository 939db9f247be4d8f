"""Workflow files from disk to plan."""
