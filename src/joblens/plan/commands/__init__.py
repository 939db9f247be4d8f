"""Texts of commands: parameters, references, quoting, patterns."""
