"""Search in the output of a job, which may be gigabytes: from a position, forward or backward, with a budget
of time for each request."""

import enum
import time
from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta, Struct

from joblens.app.server.access import Principal
from joblens.app.server.jobs import get_job
from joblens.app.server.logs import LogFile, log_path, stored_tail
from joblens.ports.store import QueueStore

_CHUNK = 1 << 20
_LONGEST_S = 1.0


class Direction(enum.StrEnum):
    FORWARD = "forward"
    BACKWARD = "backward"


class SearchQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    text: Annotated[str, Meta(min_length=1, max_length=500)]
    start: Annotated[int, Meta(ge=0, le=2**62)] | None = (
        None  # position; None: the start, or backward the end
    )
    direction: Direction = Direction.FORWARD
    ignore_case: bool = True  # of ASCII letters
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class LogMatches(Struct, frozen=True, kw_only=True):
    """`offsets`: positions of matches in the order found. `next`: where to continue; None: the output is
    searched to its end (or start)."""

    offsets: tuple[int, ...]
    length: int  # of a match, in bytes
    next: int | None
    total: int
    searched: int  # bytes


def search_log(
    store: QueueStore, caller: Principal, ident: str, stream: str, query: SearchQuery
) -> LogMatches:
    """Returns positions of matches, in bytes that the job printed."""
    ignores_case, limit, start = query.ignore_case, query.limit, query.start
    record = get_job(store, caller, ident)
    log_path(record, stream)
    needle = query.text.encode("utf-8", "replace")
    needle = needle.lower() if ignores_case else needle
    log = LogFile.open(record, stream)
    if log is None:
        data = stored_tail(record, stream).encode("utf-8", "replace")
        found = tuple(_offsets(data.lower() if ignores_case else data, needle))[:limit]
        return LogMatches(offsets=found, length=len(needle), next=None, total=len(data), searched=len(data))
    with log:
        search = _Search(log, needle, limit, ignores_case=ignores_case)
        if query.direction is Direction.FORWARD:
            return search.forward(start or 0)
        return search.backward(log.total if start is None else min(start, log.total))


def _offsets(data: bytes, needle: bytes) -> list[int]:
    found: list[int] = []
    at = data.find(needle)
    while at >= 0:
        found.append(at)
        at = data.find(needle, at + len(needle))
    return found


class _Search:
    """Reads chunks; each is read on by a match less one byte, so that none is split."""

    def __init__(self, log: LogFile, needle: bytes, limit: int, *, ignores_case: bool) -> None:
        self._log = log
        self._needle = needle
        self._ignores_case = ignores_case
        self._limit = limit
        self._total = log.total
        self._until = time.monotonic() + _LONGEST_S
        self._searched = 0

    def forward(self, start: int) -> LogMatches:
        found: list[int] = []
        position = start
        while position < self._total and not self._is_over():
            for at in self._matches_between(position, position + _CHUNK):
                if found and at < found[-1] + len(self._needle):
                    continue  # overlaps a match in the chunk before
                found.append(at)
                if len(found) == self._limit:
                    return self._result(found, at + len(self._needle))
            position += _CHUNK
        return self._result(found, position if position < self._total else None)

    def backward(self, end: int) -> LogMatches:
        """Finds matches that start before `end`."""
        found: list[int] = []
        behind = end
        while behind > 0 and not self._is_over():
            start = max(0, behind - _CHUNK)
            for at in reversed(self._matches_between(start, behind)):
                found.append(at)
                if len(found) == self._limit:
                    return self._result(found, at or None)
            behind = start
        return self._result(found, behind or None)

    def _matches_between(self, start: int, end: int) -> list[int]:
        found: list[int] = []
        for position, data in self._pieces(start, end + len(self._needle) - 1):
            text = data.lower() if self._ignores_case else data
            found += [position + at for at in _offsets(text, self._needle) if position + at < end]
        return found

    def _pieces(self, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Returns consecutive output with its position; a part that was dropped ends a piece."""
        piece, begin, at = bytearray(), start, start
        while at < end:
            part = self._log.read(at, end - at)
            if part is None:
                break
            if part.end - part.start == len(part.data):
                piece += part.data
            else:
                yield begin, bytes(piece)
                piece, begin = bytearray(), part.end
            at = part.end
        self._searched += end - start
        yield begin, bytes(piece)

    def _is_over(self) -> bool:
        return time.monotonic() > self._until

    def _result(self, found: list[int], following: int | None) -> LogMatches:
        return LogMatches(
            offsets=tuple(found),
            length=len(self._needle),
            next=following,
            total=self._total,
            searched=self._searched,
        )
