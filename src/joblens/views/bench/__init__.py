"""Benchmarks as text and reports."""
