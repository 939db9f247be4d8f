"""Comparison of jobs, runs and benchmarks, with their noise."""
