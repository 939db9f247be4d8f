"""Requests to clusters and the allocations they grant."""
