"""Benchmarks: commands against each other, and those of tools."""
