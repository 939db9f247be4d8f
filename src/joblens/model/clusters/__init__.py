"""Allocations and requests to a cluster."""
