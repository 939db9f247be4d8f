"""Recipes: load, plan, run, resume, show."""
