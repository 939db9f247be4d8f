"""Workflow files, parsed into values, or every mistake in them.

In a file with mistakes, values that cannot be read are replaced by substitutes; errors that these may cause
are not reported.
"""
