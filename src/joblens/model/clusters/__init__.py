"""Allocations and what a cluster is asked for."""
