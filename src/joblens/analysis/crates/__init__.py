"""Entities of RO-Crates."""
