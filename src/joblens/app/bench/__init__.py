"""Benchmarks of commands and of tools."""
