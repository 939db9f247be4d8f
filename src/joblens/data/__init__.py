"""Recipes: datasets, operators, partitions, checkpoints, and the process that executes them."""
