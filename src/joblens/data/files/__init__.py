"""Datasets in, results out."""
