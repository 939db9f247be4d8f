"""Recipes: datasets, operators, partitions, checkpoints, and the process that executes a recipe's job."""
