"""Long lists as text: the first few items, and how many more there are."""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def listed(items: Sequence[T], most: int, show: Callable[[T], str] = str) -> str:
    """Returns 'a, b and 4 more'. Calls `show` only for items that are shown."""
    more = len(items) - most
    return ", ".join(map(show, items[:most])) + (f" and {more:,} more" if more > 0 else "")
