"""Ledger of slot jobs: a file with a cell for every job that was sent to a slot's launcher. Should this
process be killed before the store knows of the job, the next joblens records it from there.

The owner describes a job in its cell before it sends the job, and frees the cell when the store has the job's
end. The launcher notes in the cell that it begins the job, and then how the job ended (slot_launcher.py).
Nothing is synced to disk: the page cache outlives a killed process. Every few seconds the owner writes a cell
over its whole length, so that its pages are charged to the owner's group and dirty already when the launcher
writes to them: nothing of it counts for the job."""

import contextlib
import marshal
import os
import time
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from joblens.agent.launcher import NOTE_BYTES, NOTE_HEAD_BYTES
from joblens.model.ids import new_uuid
from joblens.model.job import Job, Owner
from joblens.stores.private_files import open_with_folder

_SUFFIX = ".ledger"
_USED, _FREE = b"used", b"free"
_HEAD_BYTES = 12  # of a cell: state, number of pages, length of the description
_NOTES_PAGES = 2  # begin, end
_REFILL_S = 5.0  # less than the kernel takes to write a page back
_encode = msgspec.msgpack.Encoder().encode


class SentJob(Struct, frozen=True, array_like=True):
    """A job without its secrets, as it is recorded, and how its output is handled."""

    job: Job
    folder: str = ""
    streams: str = ""


class Begin(Struct, frozen=True):
    at_us: int
    mono_ns: int
    slot: str  # name
    can_reset_peak: bool
    reaped_s: tuple[float, float]  # user and system CPU of jobs before it; known where there are no groups
    counters: list[bytes]  # contents of the files of the slot's groups; empty: too large, or there are none


class End(Struct, frozen=True):
    at_us: int
    answer: tuple[Any, ...]  # the launcher's "done" or "failed"


class LedgerJob(Struct, frozen=True, kw_only=True):
    """A job that a launcher has begun."""

    sent: SentJob
    begin: Begin
    end: End | None  # None: it still runs, or its launcher was killed
    path: str
    place: int

    @property
    def uuid(self) -> str:
        return self.sent.job.uuid


class SlotLedger:
    """The owner's side, on the thread of the slots. Jobs run without one where no file can be made."""

    def __init__(self, spool_dir: str, owner: Owner) -> None:
        self.name = f"slots-{new_uuid()}"
        self.path = os.path.join(spool_dir, self.name + _SUFFIX)
        self._cells: dict[str, tuple[int, int]] = {}  # uuid -> place, pages
        self._free: defaultdict[int, list[int]] = defaultdict(list)  # pages -> places
        self._filled_at_s: dict[int, float] = {}  # place -> when its whole length was written
        self._end = NOTE_BYTES
        try:
            self._file = open_with_folder(self.path, os.O_RDWR | os.O_TRUNC)
            os.pwrite(self._file, msgspec.json.encode(owner), 0)
        except OSError:
            self._file, self.path = -1, ""

    def add(self, sent: SentJob) -> int:
        """-> the place for the launcher's notes; -1: none. The same for a job that comes again."""
        if self._file < 0:
            return -1
        uuid = sent.job.uuid
        known = self._cells.get(uuid)
        if known is None:
            text = _encode(sent)
            pages = -(-(_HEAD_BYTES + len(text)) // NOTE_BYTES) + _NOTES_PAGES
            place = self._free[pages].pop() if self._free[pages] else self._end
            cell = _USED + pages.to_bytes(4, "little") + len(text).to_bytes(4, "little") + text
            now_s = time.monotonic()
            if now_s - self._filled_at_s.get(place, 0.0) > _REFILL_S:
                cell = cell.ljust(pages * NOTE_BYTES, b"\0")
                self._filled_at_s[place] = now_s
            try:
                os.pwrite(self._file, cell, place)
            except OSError:  # a full disk
                return -1
            self._end = max(self._end, place + pages * NOTE_BYTES)
            known = self._cells[uuid] = place, pages
        place, pages = known
        return place + (pages - _NOTES_PAGES) * NOTE_BYTES

    def remove(self, uuids: Iterable[str]) -> None:
        """Jobs whose end the store has, or that will never begin."""
        for uuid in uuids:
            place, pages = self._cells.pop(uuid, (-1, 0))
            if pages:
                _free(self._file, place)
                self._free[pages].append(place)

    def close(self, unwritten: Container[str] = ()) -> None:
        """`unwritten`: jobs that the store refused. The next joblens finds them in the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            if not any(uuid in unwritten for uuid in self._cells):
                with contextlib.suppress(OSError):
                    os.unlink(self.path)


# ---- the next joblens --------------------------------------------------------------------------------------


def ledgers(spool_dir: str) -> list[str]:
    """Paths."""
    try:
        names = os.listdir(spool_dir)
    except OSError:
        return []
    return [os.path.join(spool_dir, name) for name in names if name.endswith(_SUFFIX)]


def ledger_owner(path: str) -> Owner | None:
    """None: the file is gone, was just made, or is somebody else's."""
    with _opened(path) as file:
        if file >= 0:
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                return msgspec.json.decode(os.pread(file, NOTE_BYTES, 0).rstrip(b"\0"), type=Owner)
    return None


def jobs_begun(path: str) -> list[LedgerJob]:
    """Jobs whose end the owner did not see into the store."""
    with _opened(path) as file:
        return list(_jobs_begun(file, path)) if file >= 0 else []


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    """-1 unless this user has written it: what it says is believed."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        yield -1
        return
    try:
        yield file if os.fstat(file).st_uid == os.geteuid() else -1
    finally:
        os.close(file)


def find_begun(spool_dir: str, uuid: str) -> LedgerJob | None:
    return next((job for path in ledgers(spool_dir) for job in jobs_begun(path) if job.uuid == uuid), None)


def _jobs_begun(file: int, path: str) -> Iterator[LedgerJob]:
    place = NOTE_BYTES
    while len(head := os.pread(file, _HEAD_BYTES, place)) == _HEAD_BYTES:
        pages, length = int.from_bytes(head[4:8], "little"), int.from_bytes(head[8:12], "little")
        if not pages:
            return  # its owner was killed in between
        if head[:4] == _USED:
            notes = place + (pages - _NOTES_PAGES) * NOTE_BYTES
            text = os.pread(file, length, place + _HEAD_BYTES)
            with contextlib.suppress(msgspec.MsgspecError, ValueError, TypeError, EOFError):
                sent = msgspec.msgpack.decode(text, type=SentJob)
                begin = _note(file, notes, sent.job.uuid)
                if begin is not None:
                    end = _note(file, notes + NOTE_BYTES, sent.job.uuid)
                    yield LedgerJob(
                        sent=sent,
                        begin=Begin(begin[0], *begin[1]),
                        end=None if end is None else End(*end),
                        path=path,
                        place=place,
                    )
        place += pages * NOTE_BYTES


def _note(file: int, place: int, uuid: str) -> tuple[int, Any] | None:
    """-> µs UTC, what was noted; None: nothing"""
    data = os.pread(file, NOTE_BYTES, place)
    if data[:36] != uuid.encode():
        return None
    at_us, length = int.from_bytes(data[36:44], "little"), int.from_bytes(data[44:48], "little")
    return at_us, marshal.loads(data[NOTE_HEAD_BYTES : NOTE_HEAD_BYTES + length])  # noqa: S302 - our launcher's


def _free(file: int, place: int) -> None:
    with contextlib.suppress(OSError):
        os.pwrite(file, _FREE, place)
