"""Changing single values of a file in place.

The bytes of a value are replaced, and the result is read again to verify it. Nothing is parsed and printed,
so comments and layout cannot be lost."""
