"""The time-series file in Torc's form: one SQLite file with `job_resource_samples` and `job_metadata`."""

import os
from collections.abc import Iterable, Iterator

import apsw
from msgspec import Struct

from joblens.model.errors import FormatError, StoreError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS job_resource_samples (
    job_id INTEGER NOT NULL,
    timestamp INTEGER NOT NULL,
    cpu_percent REAL,
    memory_bytes INTEGER,
    num_processes INTEGER,
    PRIMARY KEY (job_id, timestamp)
);
CREATE TABLE IF NOT EXISTS job_metadata (
    job_id INTEGER PRIMARY KEY,
    job_name TEXT NOT NULL
);
"""
_NEEDED = {"job_id", "timestamp", "cpu_percent", "memory_bytes", "num_processes"}

# timestamp in s, cpu_percent, memory_bytes, num_processes; None: not known
Row = tuple[int, float | None, int | None, int | None]


class SeriesRow(Struct, frozen=True):
    """`at_s` may have a fraction in files of other writers."""

    at_s: float
    cpu_percent: float | None
    memory_bytes: int | None
    num_processes: int | None


class Series(Struct, frozen=True):
    job_id: int
    job_name: str
    rows: list[SeriesRow]


class TimeSeriesWriter:
    """Adds to the file when it is there; the same row twice is one row."""

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self._connection = apsw.Connection(path)
            self._connection.execute(_SCHEMA)
            self._connection.execute("BEGIN IMMEDIATE")
        except apsw.Error as error:
            raise StoreError(f"{path}: cannot be written as a time-series file: {error}") from error

    def add(self, job_id: int, job_name: str, rows: Iterable[Row]) -> int:
        """-> how many rows the job has given."""
        listed = [(job_id, *row) for row in rows]
        try:
            self._connection.execute("INSERT OR REPLACE INTO job_metadata VALUES (?, ?)", (job_id, job_name))
            self._connection.executemany(
                "INSERT OR REPLACE INTO job_resource_samples VALUES (?, ?, ?, ?, ?)", listed
            )
        except apsw.Error as error:
            raise StoreError(f"{self._path}: {error}") from error
        return len(listed)

    def close(self) -> None:
        try:
            self._connection.execute("COMMIT")
            self._connection.close()
        except apsw.Error as error:
            raise StoreError(f"{self._path}: {error}") from error


def read_time_series(path: str) -> Iterator[Series]:
    """Every job of the file. Raises FormatError when it is no such file."""
    if not os.path.isfile(path):
        raise FormatError(f"{path}: no such file")
    try:
        connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    except apsw.Error as error:
        raise FormatError(f"{path}: {error}") from error
    try:
        yield from _series(connection, path)
    except apsw.Error as error:
        raise FormatError(f"{path}: not a readable time-series file: {error}") from error
    finally:
        connection.close()


def _series(connection: apsw.Connection, path: str) -> Iterator[Series]:
    columns = {row[1] for row in connection.execute("PRAGMA table_info(job_resource_samples)")}
    if not columns >= _NEEDED:
        missing = ", ".join(sorted(_NEEDED - columns))
        raise FormatError(f"{path}: no time-series file: job_resource_samples lacks {missing}")
    has_names = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'job_metadata'").fetchone()
    names = dict(connection.execute("SELECT job_id, job_name FROM job_metadata")) if has_names else {}
    ids = [
        row[0] for row in connection.execute("SELECT DISTINCT job_id FROM job_resource_samples ORDER BY 1")
    ]
    for job_id in ids:
        found = connection.execute(
            "SELECT timestamp, cpu_percent, memory_bytes, num_processes FROM job_resource_samples"
            " WHERE job_id = ? ORDER BY timestamp",
            (job_id,),
        )
        rows = [_row(values, path, job_id) for values in found]
        yield Series(int(job_id), str(names.get(job_id, "")), rows)


def _row(values: tuple[object, ...], path: str, job_id: object) -> SeriesRow:
    at_s, cpu_percent, memory_bytes, processes = values
    if not isinstance(at_s, int | float):
        raise FormatError(f"{path}: job {job_id} has a row whose timestamp is no number: {at_s!r}")
    for value in (cpu_percent, memory_bytes, processes):
        if value is not None and not isinstance(value, int | float):
            raise FormatError(f"{path}: job {job_id} has a row that is not made of numbers: {values}")
    return SeriesRow(float(at_s), _amount(cpu_percent), _whole(memory_bytes), _whole(processes))


def _amount(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and value >= 0 else None


def _whole(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and value >= 0 else None
