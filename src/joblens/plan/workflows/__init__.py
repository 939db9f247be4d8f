"""Workflow files expanded into plans."""
