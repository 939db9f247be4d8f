"""Stages, disk use and changes of recipes."""
