"""Measuring from inside a Python program."""
