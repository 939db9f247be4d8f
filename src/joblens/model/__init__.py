"""Frozen values, enums, ids, units and errors. No I/O and no clock."""
