"""How many lines of a file come before a place in it: people look for a bad line by its number."""

import bisect
import os

_COUNTED_BYTES = 256 << 20  # lines further into a file are not counted
_AT_ONCE = 1 << 18
_KEPT_FILES = 16

_State = tuple[str, int, int, int]
_Counts = tuple[list[int], list[int]]  # places, in order; how many lines end before each
_known: dict[_State, _Counts] = {}


def lines_before(path: str, place: int) -> int | None:
    """None: it would take too much reading. A process counts each byte once, however many slices of the file
    ask: it goes on from the last place that it knows."""
    if place > _COUNTED_BYTES:
        return None
    places, lines = _counts_of(path)
    nearest = bisect.bisect_right(places, place) - 1
    counted = lines[nearest] + _count(path, places[nearest], place)
    note_lines(path, place, counted)
    return counted


def note_lines(path: str, place: int, count: int) -> None:
    """Of somebody who counted them on another way; `place` is behind the end of a line, or the file's end."""
    places, lines = _counts_of(path)
    at = bisect.bisect_left(places, place)
    if at == len(places) or places[at] != place:
        places.insert(at, place)
        lines.insert(at, count)


def _counts_of(path: str) -> _Counts:
    """Of the file as it is now: one that was written anew has other lines."""
    found = os.stat(path)
    state = (path, found.st_ino, found.st_size, found.st_mtime_ns)
    if state not in _known:
        while len(_known) >= _KEPT_FILES:
            del _known[next(iter(_known))]
        _known[state] = ([0], [0])
    return _known[state]


def _count(path: str, start: int, end: int) -> int:
    """By calls to read into one small buffer: pages of a mapped file would count as memory of the process."""
    buffer = bytearray(_AT_ONCE)
    view, count = memoryview(buffer), 0
    with open(path, "rb", buffering=0) as file:
        file.seek(start)
        while start < end:
            size = file.readinto(view[: min(_AT_ONCE, end - start)])
            if not size:
                break
            count += buffer.count(b"\n", 0, size)
            start += size
    return count
