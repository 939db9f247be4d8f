"""Benchmarks: comparisons of commands, and benchmarks of tools."""
