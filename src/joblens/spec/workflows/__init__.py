"""Workflow files into values."""
