"""Workflow files into values, or every mistake in them.

A file with mistakes is read on with substitutes for values that cannot be read; errors that these may have
caused are not reported."""
