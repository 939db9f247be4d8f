"""Changing single values of a file in place."""
