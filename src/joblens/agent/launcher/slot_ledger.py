"""Slot ledger and outcome files: what launchers write for recovery if their owner is gone.

The owner describes a job in its cell before it sends the job, and frees the cell when the store has the job's
end. The launcher notes in the cell that it begins the job, and then how the job ended (slot_launcher.py).
Nothing is synced to disk: the page cache outlives a killed process. Every few seconds the owner writes a cell
over its whole length, so that its pages are charged to the owner's group and already dirty when the launcher
writes to them: none of this counts for the job."""

import ast
import contextlib
import marshal
import os
import struct
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from math import inf
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from joblens.agent.launcher.launch import exit_usage_of
from joblens.agent.launcher.launcher import NOTE_BYTES, NOTE_HEAD_BYTES
from joblens.files.private import create_with, names_with_suffix
from joblens.model.jobs.job import ExitUsage, Job, Owner
from joblens.model.values.ids import new_uuid
from joblens.ports.clock import Clock

_SUFFIX = ".ledger"
_USED, _FREE = b"used", b"free"
_HEAD = struct.Struct("<4sII")  # of a cell: state, number of pages, length of the description
_HEAD_BYTES = _HEAD.size
_NOTES_PAGES = 2  # begin, end
_REFILL_S = 5.0  # less than the kernel takes to write a page back
_encode, _head = msgspec.msgpack.Encoder().encode, _HEAD.pack


class SentJob(Struct, frozen=True, array_like=True):
    """Job as recorded, without its secrets, and the handling of its output."""

    job: Job
    folder: str = ""
    streams: str = ""


class Begin(Struct, frozen=True):
    at_us: int
    mono_ns: int
    slot: str  # name
    can_reset_peak: bool
    reaped_s: tuple[float, float]  # user and system CPU of earlier jobs; only without groups
    counters: list[bytes]  # contents of the files of the slot's groups; empty: too large, or there are none


class JobDone(NamedTuple):
    """Report of a launcher about a job that ran, as sent and noted."""

    kind: str  # "done"
    wait_status: int
    totals: tuple[Any, ...]  # as in launcher.TOTALS
    own_cpu_usec: int  # of the launcher
    started_ns: int
    ended_ns: int
    stdout_bytes: int
    stderr_bytes: int
    logs_dir: str
    has_leftovers: bool
    counters: list[bytes]  # contents of the files of the slot's groups


class StartFailed(NamedTuple):
    """Report of a launcher about a job that could not be started."""

    kind: str  # "failed"
    number: int  # of the system's error
    stage: str
    name: str


def report_of(message: Sequence[Any]) -> JobDone | StartFailed:
    """Raises TypeError for a report of another version."""
    return StartFailed(*message) if message[0] == "failed" else JobDone(*message)


class End(Struct, frozen=True):
    at_us: int
    report: JobDone | StartFailed


class LedgerJob(Struct, frozen=True, kw_only=True):
    """Job that a launcher has begun."""

    sent: SentJob
    begin: Begin
    end: End | None  # None: it still runs, or its launcher was killed
    path: str
    offset: int

    @property
    def uuid(self) -> str:
        return self.sent.job.uuid


class SlotLedger:
    """Ledger of the owner, on the thread of the slots. Jobs run without one if no file can be made."""

    def __init__(self, spool_dir: str, owner: Owner, clock: Clock) -> None:
        self._clock = clock
        self.name = f"slots-{new_uuid()}"
        self.path = os.path.join(spool_dir, self.name + _SUFFIX)
        self._cells: dict[str, tuple[int, int]] = {}  # uuid -> offset, pages
        self._free: defaultdict[int, list[int]] = defaultdict(list)  # pages -> offsets
        self._filled_at_s: dict[int, float] = {}  # offset -> when its whole length was written
        self._end = NOTE_BYTES
        self._file = -1
        try:
            self._file = create_with(self.path, msgspec.json.encode(owner))
        except OSError:
            self.path = ""

    def add(self, sent: SentJob) -> int:
        """Returns the offset for the launcher's notes, or -1 without one. The offset of a job does not
        change."""
        if self._file < 0:
            return -1
        uuid = sent.job.uuid
        known = self._cells.get(uuid)
        if known is None:
            known = self._write_cell(_encode(sent))
            if known is None:
                return -1
            self._cells[uuid] = known
        offset, pages = known
        return offset + (pages - _NOTES_PAGES) * NOTE_BYTES

    def _write_cell(self, text: bytes) -> tuple[int, int] | None:
        """Returns (offset, pages), or None if the disk is full."""
        pages = -(-(_HEAD_BYTES + len(text)) // NOTE_BYTES) + _NOTES_PAGES
        free = self._free[pages]
        offset = free[-1] if free else self._end
        cell = _head(_USED, pages, len(text)) + text
        now_s = self._clock.mono_ns() / 1e9
        is_filled = now_s - self._filled_at_s.get(offset, -inf) <= _REFILL_S
        if not is_filled:
            cell = cell.ljust(pages * NOTE_BYTES, b"\0")
        if not _is_written(self._file, cell, offset):
            return None
        if not is_filled:
            self._filled_at_s[offset] = now_s
        if free:
            free.pop()
        else:
            self._end += pages * NOTE_BYTES
        return offset, pages

    def remove(self, uuids: Iterable[str]) -> None:
        """Frees the cells of jobs whose end is in the store, or that will never begin."""
        for uuid in uuids:
            offset, pages = self._cells.pop(uuid, (-1, 0))
            if pages:
                _is_written(self._file, _FREE, offset)
                self._free[pages].append(offset)

    def close(self, unwritten: Container[str] = ()) -> None:
        """Removes the file unless it has `unwritten` jobs, which the store refused: the next joblens process
        reads them."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            if not any(uuid in unwritten for uuid in self._cells):
                with contextlib.suppress(OSError):
                    os.unlink(self.path)


# ---- recovery ----------------------------------------------------------------------------------------------


def ledgers(spool_dir: str) -> list[str]:
    """Returns the paths of all ledgers."""
    return [os.path.join(spool_dir, name + _SUFFIX) for name in names_with_suffix(spool_dir, _SUFFIX)]


def ledger_owner(path: str) -> Owner | None:
    """Returns None if the file is gone, was just made, or belongs to another user."""
    with _opened(path) as file:
        if file >= 0:
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                return msgspec.json.decode(os.pread(file, NOTE_BYTES, 0).rstrip(b"\0"), type=Owner)
    return None


def started_jobs(path: str) -> list[LedgerJob]:
    """Returns the jobs whose end may not be in the store."""
    with _opened(path) as file:
        return list(_started_jobs(file, path)) if file >= 0 else []


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    """Yields a descriptor, or -1 if another user wrote the file, whose content cannot be trusted."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        yield -1
        return
    try:
        yield file if os.fstat(file).st_uid == os.geteuid() else -1
    finally:
        os.close(file)


def reload_job(job: LedgerJob) -> LedgerJob:
    """Returns the job as it is now: its end may have been noted since."""
    with _opened(job.path) as file:
        found = _job_at(file, job.path, job.offset) if file >= 0 else None
    return found if found is not None and found.uuid == job.uuid else job


def _started_jobs(file: int, path: str) -> Iterator[LedgerJob]:
    offset = NOTE_BYTES
    while len(head := os.pread(file, _HEAD_BYTES, offset)) == _HEAD_BYTES:
        _, pages, _ = _HEAD.unpack(head)
        if not pages:
            return  # its owner was killed in between
        job = _job_at(file, path, offset)
        if job is not None:
            yield job
        offset += pages * NOTE_BYTES


def _job_at(file: int, path: str, offset: int) -> LedgerJob | None:
    """Returns None if the cell is free, or no launcher has begun its job."""
    head = os.pread(file, _HEAD_BYTES, offset)
    state, pages, length = _HEAD.unpack(head) if len(head) == _HEAD_BYTES else (_FREE, 0, 0)
    if state != _USED:
        return None
    notes = offset + (pages - _NOTES_PAGES) * NOTE_BYTES
    text = os.pread(file, length, offset + _HEAD_BYTES)
    with contextlib.suppress(msgspec.MsgspecError, ValueError, TypeError, EOFError):
        sent = msgspec.msgpack.decode(text, type=SentJob)
        begin = _note(file, notes, sent.job.uuid)
        if begin is not None:
            end = _note(file, notes + NOTE_BYTES, sent.job.uuid)
            return LedgerJob(
                sent=sent,
                begin=Begin(begin[0], *begin[1]),
                end=None if end is None else End(end[0], report_of(end[1])),
                path=path,
                offset=offset,
            )
    return None


def _note(file: int, offset: int, uuid: str) -> tuple[int, Any] | None:
    """Returns (µs UTC, the note), or None if there is none or only a part of it."""
    data = os.pread(file, NOTE_BYTES, offset)
    if data[:36] != uuid.encode():
        return None
    at_us, length = int.from_bytes(data[36:44], "little"), int.from_bytes(data[44:48], "little")
    text = data[NOTE_HEAD_BYTES : NOTE_HEAD_BYTES + length]
    return (at_us, marshal.loads(text)) if len(text) == length else None


def _is_written(file: int, data: bytes, offset: int) -> bool:
    """Returns whether all of the data was written: a full disk may take a part."""
    try:
        return os.pwrite(file, data, offset) == len(data)
    except OSError:
        return False


_OUTCOME_SUFFIX = ".outcome"


class LauncherOutcome(Struct, frozen=True):
    wait_status: int | None
    reaped: ExitUsage
    ended_at_us: int
    ended_mono_ns: int
    logs_dir: str  # folder of its output, if it was chosen at its end
    counters: dict[str, bytes] = {}  # path -> contents of files of its groups, when all processes had ended
    slot_job: LedgerJob | None = None  # as in the ledger of its slot


def outcome_path(spool_dir: str, uuid: str) -> str:
    return os.path.join(spool_dir, uuid + _OUTCOME_SUFFIX)


def jobs_with_outcome(spool_dir: str) -> list[str]:
    """Returns the uuids of jobs with such a file."""
    return names_with_suffix(spool_dir, _OUTCOME_SUFFIX)


def read_launcher_outcome(spool_dir: str, uuid: str, slot_job: LedgerJob | None) -> LauncherOutcome | None:
    """Returns None if there is none, or if another version wrote it in an unknown form. `slot_job`: the job
    as in a ledger."""
    return _read_file(spool_dir, uuid) or _outcome_in_ledger(slot_job)


def _outcome_in_ledger(job: LedgerJob | None) -> LauncherOutcome | None:
    if job is None or job.end is None or isinstance(job.end.report, StartFailed):
        return None
    done = job.end.report
    ended_at_us = job.begin.at_us + (done.ended_ns - job.begin.mono_ns) // 1000
    reaped = exit_usage_of(done.totals)
    return LauncherOutcome(done.wait_status, reaped, ended_at_us, done.ended_ns, done.logs_dir, slot_job=job)


def _read_file(spool_dir: str, uuid: str) -> LauncherOutcome | None:
    try:
        with open(outcome_path(spool_dir, uuid), encoding="ascii", errors="surrogateescape") as file:
            status, totals, ended_at_us, ended_ns, logs_dir, *others = ast.literal_eval(file.read())
        if not isinstance(totals, tuple):
            return None
        # Launchers of earlier versions noted no counters.
        counters = msgspec.convert(others[0] if others else {}, dict[str, bytes])
        return LauncherOutcome(status, exit_usage_of(totals), ended_at_us, ended_ns, logs_dir, counters)
    except (OSError, ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None  # MsgspecError is a ValueError, too
