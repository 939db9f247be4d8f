"""Recipes: datasets, operators, partitions, checkpoints, and the process that carries a recipe out."""
