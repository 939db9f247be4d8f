"""Sums of numbers, some of them unknown."""

from collections.abc import Iterable


def sum_of_all(values: Iterable[int | None]) -> int | None:
    """Returns None if any value is unknown. The sum of no values is 0."""
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def sum_of_known(values: Iterable[int | None]) -> int | None:
    """Returns the sum of the known values, or None if there are none."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
