"""Output of a job in windows of whole lines, by position: a reader of gigabytes never holds more than some of
them."""

import enum

from msgspec import Struct

from joblens.app.server.access import Principal
from joblens.app.server.jobs import get_job
from joblens.app.server.logs import LogFile, log_path, node_of, stored_tail
from joblens.ports.store import QueueStore

_LONGEST_LINE = 8 << 10  # bytes; a longer one comes in several pieces
_MOST_BYTES = 1 << 20  # of one window
_FIRST_SPAN = 1 << 16


class WindowPart(enum.StrEnum):
    """Which lines: from a position, before it, or on both sides of the line that it is in."""

    FORWARD = "forward"
    BACKWARD = "backward"
    AROUND = "around"


class LogLine(Struct, frozen=True):
    at: int  # position of its first byte
    text: str


class LogWindow(Struct, frozen=True, kw_only=True):
    """`next`: where to continue; the last line is before it, unless its end has not been printed yet."""

    start: int
    next: int
    total: int
    lines: tuple[LogLine, ...]
    is_final: bool  # the job prints nothing more
    source: str  # file, or record: only the last lines, which the record has
    node: str = ""  # machine that has the file


def read_window(
    store: QueueStore,
    caller: Principal,
    ident: str,
    stream: str,
    *,
    at: int | None,
    part: WindowPart,
    limit: int,
) -> LogWindow:
    """`at` None: the end, or forward the start."""
    record = get_job(store, caller, ident)
    log_path(record, stream)  # refuses other names
    is_final = record.status.is_final
    log = LogFile.open(record, stream)
    if log is None:
        data = stored_tail(record, stream).encode("utf-8", "replace")
        lines, _ = _split([(0, data)], len(data), is_final=True)
        return LogWindow(
            start=0,
            next=len(data),
            total=len(data),
            lines=tuple(lines[-limit:]),
            is_final=is_final,
            source="record",
            node=node_of(record),
        )
    with log:
        reader = _Reader(log, is_final=is_final)
        if part is WindowPart.FORWARD:
            start, lines, following = reader.forward(at or 0, limit)
        elif part is WindowPart.BACKWARD:
            start, lines, following = reader.backward(reader.total if at is None else at, limit)
        else:
            line_start = reader.line_start(reader.total if at is None else at)
            start, before, _ = reader.backward(line_start, limit // 2)
            _, behind, following = reader.forward(line_start, limit - limit // 2)
            lines = [*before, *behind]
        return LogWindow(
            start=start,
            next=following,
            total=reader.total,
            lines=tuple(lines),
            is_final=is_final,
            source="file",
            node=node_of(record),
        )


Found = tuple[int, list[LogLine], int]  # start, lines, where to continue


class _Reader:
    def __init__(self, log: LogFile, *, is_final: bool) -> None:
        self._log = log
        self._is_final = is_final
        self.total = log.total

    def forward(self, at: int, limit: int) -> Found:
        start = min(at, self.total)
        span = _FIRST_SPAN
        while True:
            end = min(self.total, start + span)
            lines, following = self._lines(start, end)
            if len(lines) > limit:
                return start, lines[:limit], lines[limit].at
            if end == self.total or span >= _MOST_BYTES:
                return start, lines, following
            span *= 4

    def backward(self, before: int, limit: int) -> Found:
        end = min(before, self.total)
        span = _FIRST_SPAN
        while end > 0 and limit > 0:
            start = max(0, end - span)
            gap = self._log.start_of_gap(start)
            start = start if gap is None else gap
            first = start if start == 0 or gap is not None else self._after_newline(start, end)
            lines, following = self._lines(first, end)
            if len(lines) >= limit or start == 0 or span >= _MOST_BYTES:
                window = lines[-limit:]
                return (window[0].at if window else first), window, following
            span *= 4
        return end, [], end

    def line_start(self, at: int) -> int:
        """Returns where the line of this position starts; of a very long line some position in it."""
        end = min(at, self.total)
        start = max(0, end - _LONGEST_LINE)
        data = b"".join(part for _, part in self._parts(start, end))
        found = data.rfind(b"\n")
        return start if found < 0 else end - (len(data) - found - 1)

    def _after_newline(self, start: int, end: int) -> int:
        """Returns the first start of a line behind `start`."""
        for position, data in self._parts(start - 1, end):
            found = data.find(b"\n")
            if found >= 0 and position + found + 1 < end:
                return position + found + 1
        return start

    def _lines(self, start: int, end: int) -> tuple[list[LogLine], int]:
        return _split(self._parts(start, end), end, is_final=self._is_final or end < self.total)

    def _parts(self, start: int, end: int) -> list[tuple[int, bytes]]:
        """Returns (position, output); of a part that was dropped a notice."""
        found: list[tuple[int, bytes]] = []
        at = start
        while at < end and (part := self._log.read(at, end - at)) is not None:
            found.append((part.start, part.data))
            at = part.end
        return found


def _split(parts: list[tuple[int, bytes]], end: int, *, is_final: bool) -> tuple[list[LogLine], int]:
    """Returns lines, and where to continue: at the last line, if more of it may follow."""
    lines: list[LogLine] = []
    rest, rest_at = b"", 0
    for position, data in parts:
        if rest and position != rest_at + len(rest):  # a part is missing in between
            lines.append(_line(rest_at, rest))
            rest = b""
        if not rest:
            rest_at = position
        whole = rest + data
        at = rest_at
        *ended, rest = whole.split(b"\n")
        for line in ended:
            _add(lines, at, line)
            at += len(line) + 1
        rest_at = at
        while len(rest) > _LONGEST_LINE:
            piece = _cut(rest)
            lines.append(_line(rest_at, rest[:piece]))
            rest, rest_at = rest[piece:], rest_at + piece
    if not rest:
        return lines, end
    lines.append(_line(rest_at, rest))
    return lines, end if is_final else rest_at


def _add(lines: list[LogLine], at: int, line: bytes) -> None:
    while len(line) > _LONGEST_LINE:
        piece = _cut(line)
        lines.append(_line(at, line[:piece]))
        line, at = line[piece:], at + piece
    lines.append(_line(at, line))


def _cut(line: bytes) -> int:
    """Returns a length that halves no character."""
    length = _LONGEST_LINE
    while length > _LONGEST_LINE - 4 and line[length] & 0xC0 == 0x80:
        length -= 1
    return length


def _line(at: int, data: bytes) -> LogLine:
    return LogLine(at, data.rstrip(b"\r").decode("utf-8", "replace"))
