"""Operators by name, their parameters, and operators that users write."""
