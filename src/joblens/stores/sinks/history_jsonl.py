"""jobs_history.jsonl: one line per ended job, in the history form."""

import os
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec

from joblens.analysis.formats.history import to_history_record
from joblens.files.private import make_private_folder
from joblens.files.rotation import RotatingFile
from joblens.model.jobs.job import Record
from joblens.stores.sinks import SelectiveSink

_FEW = 20  # so many ids are searched for faster than a line is decoded


class _Line(msgspec.Struct):
    job_uuid: str = ""


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=3)


class HistoryJsonl(SelectiveSink):
    """Several processes may append to one file (files.rotation)."""

    def __init__(
        self, path: str, max_size: int = 0, backup_count: int = 5, warn: Callable[[str], None] = _warn
    ) -> None:
        self._path = path
        self._file = RotatingFile(path, max_size, backup_count)
        self._warn = warn
        self._has_warned = False

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


def remove_jobs(path: str, uuids: Collection[str]) -> int:
    """Removes the lines of deleted jobs, from rotated files too. Returns how many there were."""
    wanted, keys = set(uuids), [uuid.encode() for uuid in uuids]

    def is_deleted(line: bytes) -> bool:
        # Lines are decoded only where they may be about one of the jobs: there may be millions.
        if len(keys) <= _FEW and not any(key in line for key in keys):
            return False
        try:
            return msgspec.json.decode(line, type=_Line).job_uuid in wanted
        except msgspec.DecodeError:
            return False  # unfinished, or not ours

    file = RotatingFile(path, 0, 0)
    try:
        return file.remove_lines(is_deleted)
    finally:
        file.close()


def _keys_in(path: str, keys: Iterable[bytes]) -> set[bytes]:
    """Returns the keys that occur in the file."""
    import mmap

    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return {key for key in keys if content.find(key) >= 0}
    except (OSError, ValueError):  # none, or an empty one
        return set()
