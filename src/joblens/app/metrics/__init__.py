"""Prometheus metrics: read the store, render families, serve or write them."""
