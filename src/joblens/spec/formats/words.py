"""Words for messages about what people write: the nearest right one, and a value as it stood there."""

from collections.abc import Iterable, Sequence
from typing import Any

_LONGEST_SHOWN = 60
_TOO_LONG = 10**_LONGEST_SHOWN  # Python itself refuses to write numbers of thousands of digits


def nearest_word(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    import difflib

    found = difflib.get_close_matches(word.lower().replace("-", "_"), list(known), n=1, cutoff=cutoff)
    return found[0] if found else None


def shown(raw: Any) -> str:
    match raw:
        case None:
            return "nothing"
        case bool():
            return "true" if raw else "false"
        case str():
            return f"'{raw}'" if len(raw) <= _LONGEST_SHOWN else f"'{raw[:_LONGEST_SHOWN]}…'"
        case dict():
            return "a mapping"
        case list():
            return "a list"
    if isinstance(raw, int) and abs(raw) >= _TOO_LONG:
        return "a number that long"
    return str(raw)


def any_of(words: Sequence[str]) -> str:
    """'a', 'a or b', 'a, b or c'"""
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last
