"""jobs_history.jsonl: one line per ended job, in the history form."""

import os
import warnings
from collections.abc import Callable, Iterable, Sequence

import msgspec

from joblens.analysis.formats.history import to_history_record
from joblens.files.private import make_private_folder
from joblens.files.rotation import RotatingFile
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import Record
from joblens.model.jobs.sample import Sample


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=3)


class HistoryJsonl:
    """Implements ports.store.Sink. Several processes may append to one file (files.rotation)."""

    def __init__(
        self, path: str, max_size: int = 0, backup_count: int = 5, warn: Callable[[str], None] = _warn
    ) -> None:
        self._path = path
        self._file = RotatingFile(path, max_size, backup_count)
        self._warn = warn
        self._has_warned = False

    def job_started(self, record: Record) -> None:
        """Does nothing: only ended jobs are written."""

    def samples_taken(self, uuid: str, samples: Sequence[Sample]) -> None:
        """Does nothing: samples have files of their own."""

    def details_taken(self, uuid: str, details: Details) -> None:
        """Does nothing: details change while a job runs; the record has their last state."""

    def jobs_ended(self, records: Sequence[Record]) -> None:
        lines = b"".join(msgspec.json.encode(to_history_record(record)) + b"\n" for record in records)
        try:
            make_private_folder(os.path.dirname(os.path.abspath(self._path)))
            self._file.append(lines)
        except OSError as error:
            if not self._has_warned:
                self._has_warned = True
                self._warn(f"{self._path} cannot be written: {error.strerror}; ended jobs are missing there")

    def add_missing(self, records: Sequence[Record]) -> None:
        """Writes the records that have no line in the file or in the newest rotated file."""
        keys = {one.job.uuid: f'"job_uuid":"{one.job.uuid}"'.encode() for one in records}
        known = _keys_in(f"{self._path}.1", keys.values()) | _keys_in(self._path, keys.values())
        missing = [one for one in records if keys[one.job.uuid] not in known]
        if missing:
            self.jobs_ended(missing)

    def close(self) -> None:
        self._file.close()


def _keys_in(path: str, keys: Iterable[bytes]) -> set[bytes]:
    """Returns the keys that occur in the file."""
    import mmap

    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return {key for key in keys if content.find(key) >= 0}
    except (OSError, ValueError):  # none, or an empty one
        return set()
