"""Lists and counts as text."""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def listed(items: Sequence[T], most: int, show: Callable[[T], str] = str) -> str:
    """Returns 'a, b and 4 more'. Calls `show` only for items that are shown."""
    more = len(items) - most
    return ", ".join(map(show, items[:most])) + (f" and {more:,} more" if more > 0 else "")


def more(count: int, noun: str = "") -> str:
    """Returns '… and 4 more', '… and 4 more jobs', below the first items of a list."""
    return f"… and {counted(count, f'more {noun}')}" if noun else f"… and {count:,} more"


def counted(number: float, noun: str) -> str:
    """Returns '1 job', '2,000 jobs', '3 processes', '0.5 CPUs'."""
    text = f"{number:,.0f}" if number == int(number) else f"{number:g}"
    plural = f"{noun}es" if noun.endswith("ss") else f"{noun}s"
    return f"{text} {noun if number == 1 else plural}"
