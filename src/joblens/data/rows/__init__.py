"""Rows of one partition, as columns and as dicts."""
