"""Snapshots, partition sizes and statistics of recipes."""
