"""jobs_history.jsonl: one line for each job that has ended, in the history form."""

import fcntl
import os
import warnings
from collections.abc import Callable, Iterable, Sequence

import msgspec

from joblens.analysis.formats.history import to_history_record
from joblens.files.private import append_whole, make_private_folder, open_to_append
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import Record
from joblens.model.jobs.sample import Sample


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=3)


class HistoryJsonl:
    """ports.sink.Sink. Any number of processes may append to one file: each batch is one write under a
    lock. Moving the file away (logrotate, `mv`) is noticed; a line someone left unfinished stays alone."""

    def __init__(
        self, path: str, max_size: int = 0, backup_count: int = 5, warn: Callable[[str], None] = _warn
    ) -> None:
        self._path = path
        self._max_size = max_size
        self._backup_count = backup_count
        self._warn = warn
        self._has_warned = False
        self._descriptor: int | None = None

    def job_started(self, record: Record) -> None:
        """Only jobs that have ended are written."""

    def samples_taken(self, uuid: str, samples: Sequence[Sample]) -> None:
        """Samples have files of their own."""

    def details_taken(self, uuid: str, details: Details) -> None:
        """They change while a job runs; what counts in the end is in its record."""

    def jobs_ended(self, records: Sequence[Record]) -> None:
        lines = b"".join(msgspec.json.encode(to_history_record(record)) + b"\n" for record in records)
        try:
            self._append(lines)
        except OSError as error:
            if not self._has_warned:
                self._has_warned = True
                self._warn(f"{self._path} cannot be written: {error.strerror}; ended jobs are missing there")

    def add_missing(self, records: Sequence[Record]) -> None:
        """Writes those that have no line in the file, nor in the one that was rotated last."""
        keys = {one.job.uuid: f'"job_uuid":"{one.job.uuid}"'.encode() for one in records}
        known = _keys_in(f"{self._path}.1", keys.values()) | _keys_in(self._path, keys.values())
        missing = [one for one in records if keys[one.job.uuid] not in known]
        if missing:
            self.jobs_ended(missing)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _append(self, lines: bytes) -> None:
        descriptor = self._locked()
        try:
            size = os.fstat(descriptor).st_size
            if self._max_size and size and size + len(lines) > self._max_size:
                self._rotate()
                fcntl.flock(descriptor, fcntl.LOCK_UN)
                descriptor = self._locked()
                size = os.fstat(descriptor).st_size
            is_torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            append_whole(descriptor, b"\n" + lines if is_torn else lines)
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)

    def _locked(self) -> int:
        """The file that has the name now, locked."""
        while True:
            if self._descriptor is None:
                make_private_folder(os.path.dirname(os.path.abspath(self._path)))
                self._descriptor = open_to_append(self._path)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            if self._is_current(self._descriptor):
                return self._descriptor
            self.close()  # moved away or rotated by another process; closing lets go of the lock

    def _is_current(self, descriptor: int) -> bool:
        try:
            named, held = os.stat(self._path), os.fstat(descriptor)
        except FileNotFoundError:
            return False
        return (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)

    def _rotate(self) -> None:
        """jobs_history.jsonl.1 is the newest; beyond `backup_count` the oldest goes."""
        if self._backup_count < 1:
            os.unlink(self._path)
            return
        for number in range(self._backup_count - 1, 0, -1):
            if os.path.exists(f"{self._path}.{number}"):
                os.replace(f"{self._path}.{number}", f"{self._path}.{number + 1}")
        os.replace(self._path, f"{self._path}.1")


def _keys_in(path: str, keys: Iterable[bytes]) -> set[bytes]:
    """Returns the keys that occur in the file."""
    import mmap

    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return {key for key in keys if content.find(key) >= 0}
    except (OSError, ValueError):  # none, or an empty one
        return set()
