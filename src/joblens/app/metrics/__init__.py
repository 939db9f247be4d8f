"""Prometheus metrics: read the store, render families, serve them over HTTP or write them to a file."""
