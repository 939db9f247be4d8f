"""Whether files are still those that were looked at, without reading them."""

import os
from collections.abc import Iterable, Mapping

Mark = tuple[int, int, int] | None  # None: it is not there


def mark_of(path: str) -> Mark:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def marks_of(paths: Iterable[str]) -> dict[str, Mark]:
    return {path: mark_of(path) for path in paths}


def are_unchanged(marks: Mapping[str, Mark]) -> bool:
    return all(mark_of(path) == mark for path, mark in marks.items())
