"""Measuring processes, control groups and containers that already run."""
