"""Output of jobs by position: ranges and reading on, while the file grows, has a hole or was shortened.

A position counts the bytes that the job printed. It stays valid when the file is shortened at the job's end,
so that a reader can continue from where it stopped."""

import os
import stat
from typing import Self

from msgspec import Struct

from joblens.app.jobs.logs import STREAMS
from joblens.model.errors import InputError
from joblens.model.jobs.job import Record

_CHUNK = 1 << 16


class LogPart(Struct, frozen=True):
    """`data` from `start`; `end` is where to continue. Where output was dropped, `data` is a notice."""

    start: int
    end: int
    data: bytes


class LogFile:
    """One stream of one job. `total`: bytes printed so far."""

    def __init__(self, descriptor: int, total: int | None) -> None:
        self._descriptor = descriptor
        size = os.fstat(descriptor).st_size
        self._cut = None if total is None or total == size else _find_cut(size, total)
        self._final_total = total

    @classmethod
    def open(cls, record: Record, stream: str) -> "LogFile | None":
        """Returns None where this machine cannot read the file; the record may have the last lines."""
        path = log_path(record, stream)
        if path is None:
            return None
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return None
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)  # a pipe or a device would block the server
            return None
        outcome = record.outcome
        printed: int | None = None if outcome is None else getattr(outcome, f"{stream}_bytes")
        return cls(descriptor, printed)

    @property
    def total(self) -> int:
        if self._cut is not None and self._final_total is not None:
            return self._final_total
        return os.fstat(self._descriptor).st_size

    def read(self, position: int, most: int = _CHUNK) -> LogPart | None:
        """Returns the next part at or after `position`; None: there is nothing more now."""
        if self._cut is not None:
            return self._cut.read(self._descriptor, position, most)
        size = os.fstat(self._descriptor).st_size
        if position >= size:
            return None
        data_at = _seek(self._descriptor, position, os.SEEK_DATA, position)
        if data_at > position:
            return LogPart(position, data_at, _notice(data_at - position))
        hole_at = _seek(self._descriptor, position, os.SEEK_HOLE, size)
        chunk = os.pread(self._descriptor, min(most, max(hole_at - position, 1)), position)
        return LogPart(position, position + len(chunk), chunk) if chunk else None

    def start_of_gap(self, position: int) -> int | None:
        """Returns where the dropped output around `position` starts; None: nothing was dropped there."""
        if self._cut is not None:
            return self._cut.half if self._cut.half <= position < self._cut.total - self._cut.half else None
        size = os.fstat(self._descriptor).st_size
        if position >= size or _seek(self._descriptor, position, os.SEEK_DATA, size) == position:
            return None
        return min(position, _seek(self._descriptor, 0, os.SEEK_HOLE, position))

    def position_of_last_lines(self, count: int) -> int:
        """Returns where the last `count` lines start, looking back at most some megabytes."""
        position, missing = self.total, count + 1
        for _ in range(64):
            if position <= 0 or count <= 0:
                break
            start = max(0, position - _CHUNK)
            part = self.read(start, position - start)
            if part is None or part.end > position:
                break
            data = part.data
            if missing == count + 1 and not data.endswith(b"\n"):
                missing -= 1  # the last line has no end
            ends = [index for index, byte in enumerate(data) if byte == 0x0A]
            if len(ends) >= missing:
                return part.start + ends[-missing] + 1
            missing -= len(ends)
            position = start
        return position if count > 0 else self.total

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()  # of a download whose client left before its first part

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def log_path(record: Record, stream: str) -> str | None:
    """Returns the path of a stream's file; None where none was recorded. Raises InputError for other names:
    a stream is never part of a path that the client chose."""
    if stream not in STREAMS:
        raise InputError(f"there is no stream '{stream[:40]}'", hint="stdout or stderr")
    folder = record.attempt.logs_dir if record.attempt is not None else ""
    return os.path.join(folder, STREAMS[stream]) if folder and os.path.isabs(folder) else None


def stored_tail(record: Record, stream: str) -> str:
    """Returns the last lines that the record itself has."""
    outcome = record.outcome
    if outcome is None:
        return ""
    return outcome.stdout_tail if stream == "stdout" else outcome.stderr_tail


def node_of(record: Record) -> str:
    """Returns the name of the machine that has the file; '' where the job never started."""
    return "" if record.attempt is None else record.attempt.owner.host


class _Cut(Struct, frozen=True):
    """A file that was shortened: `half` bytes of the start, a notice, `half` bytes of the end."""

    half: int
    notice: bytes
    total: int

    def read(self, descriptor: int, position: int, most: int) -> LogPart | None:
        tail_at = self.total - self.half
        if position >= self.total:
            return None
        if position < self.half:
            chunk = os.pread(descriptor, min(most, self.half - position), position)
        elif position < tail_at:
            return LogPart(position, tail_at, self.notice)
        else:
            offset = self.half + len(self.notice) + position - tail_at
            chunk = os.pread(descriptor, most, offset)
        return LogPart(position, position + len(chunk), chunk) if chunk else None


def _find_cut(size: int, total: int) -> _Cut | None:
    """Returns how a file of this size was cut from that many bytes; None: it was not."""
    for digits in range(1, 20):
        half, odd = divmod(size - len(_notice(0)) + 1 - digits, 2)
        omitted = total - 2 * half
        if not odd and half > 0 and len(str(omitted)) == digits and omitted > 0:
            return _Cut(half, _notice(omitted), total)
    return None


def _notice(omitted: int) -> bytes:
    return f"\n[joblens: {omitted} bytes omitted]\n".encode()


def _seek(descriptor: int, position: int, whence: int, otherwise: int) -> int:
    try:
        return os.lseek(descriptor, position, whence)
    except OSError:  # nothing but the end behind it, or a file system that does not know holes
        return otherwise
