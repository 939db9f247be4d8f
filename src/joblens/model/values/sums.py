"""Sums of numbers of which some are not known."""

from collections.abc import Iterable


def sum_of_all(values: Iterable[int | None]) -> int | None:
    """Returns None if one of them is not known. The sum of none is 0."""
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def sum_of_known(values: Iterable[int | None]) -> int | None:
    """Returns None if none is known."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
