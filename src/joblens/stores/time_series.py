"""The time-series file in Torc's form: one SQLite file with `job_resource_samples` and `job_metadata`,
and the machine's numbers in `system_resource_samples`."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import apsw
from msgspec import Struct

from joblens.model.errors import FormatError, StoreError
from joblens.stores.named_queries import Queries
from joblens.stores.private_files import make_private_file

_NEEDED = {"job_id", "timestamp", "cpu_percent", "memory_bytes", "num_processes"}
_NEEDED_OF_HOST = {"timestamp", "cpu_percent", "memory_bytes"}

with open(os.path.join(os.path.dirname(__file__), "time_series.sql"), encoding="utf-8") as _file:
    _QUERIES = Queries.parse(_file.read())

# timestamp in s, cpu_percent, memory_bytes, num_processes; None: not known
Row = tuple[int, float | None, int | None, int | None]
# timestamp in s, cpu_percent of the whole machine, memory in use, memory there is
HostRow = tuple[int, float | None, int | None, int | None]


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
    job_uuid: str = ""  # of a job that joblens wrote; its memory is what cannot be reclaimed


class TimeSeriesWriter:
    """Adds to the file when it is there; the same row twice is one row."""

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            make_private_file(path)
            self._connection = apsw.Connection(path)
            self._connection.execute(_QUERIES["schema"])
            self._connection.execute(_QUERIES["begin"])
        except apsw.Error as error:
            raise StoreError(f"{path}: cannot be written as a time-series file: {error}") from error
        except OSError as error:
            raise StoreError(f"{path}: cannot be written: {error.strerror}") from error

    def add(self, job_id: int, job_name: str, job_uuid: str, rows: Iterable[Row]) -> int:
        """-> how many rows the job has given."""
        listed = [(job_id, *row) for row in rows]
        with self._errors():
            self._connection.execute(_QUERIES["put_job"], (job_id, job_name))
            self._connection.execute(_QUERIES["put_own_job"], (job_id, job_uuid))
            self._connection.executemany(_QUERIES["put_sample"], listed)
        return len(listed)

    def add_host(self, rows: Iterable[HostRow]) -> None:
        """The machine's own numbers, while the jobs ran."""
        with self._errors():
            self._connection.executemany(_QUERIES["put_host_sample"], list(rows))

    def close(self) -> None:
        with self._errors():
            self._connection.execute(_QUERIES["clear_host_summary"])
            self._connection.execute(_QUERIES["put_host_summary"])
            self._connection.execute(_QUERIES["commit"])
            self._connection.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except apsw.Error as error:
            raise StoreError(f"{self._path}: {error}") from error


def read_time_series(path: str) -> Iterator[Series]:
    """Every job of the file. Raises FormatError when it is no such file."""
    if not os.path.isfile(path):
        raise FormatError(f"{path}: no such file")
    with _opened(path) as connection:
        yield from _series(connection, path)


def read_host_series(path: str) -> list[SeriesRow]:
    """The machine's own numbers; none where the file has no such table. CPU: 100 is all cores."""
    with _opened(path) as connection:
        columns = {row[0] for row in connection.execute(_QUERIES["host_columns"])}
        found = list(connection.execute(_QUERIES["host_samples"])) if columns >= _NEEDED_OF_HOST else []
    return [_row((*values, None), path, "of the machine") for values in found]


@contextmanager
def _opened(path: str) -> Iterator[apsw.Connection]:
    """For reading. A file with a write-ahead log in a folder that is not ours to write in can only be read
    when SQLite is told that nobody writes to it; without a log that holds anything that is so."""
    connection = None
    try:
        connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        try:
            connection.execute(_QUERIES["columns"]).fetchall()
        except (apsw.ReadOnlyError, apsw.CantOpenError):
            if os.path.exists(f"{path}-wal") and os.path.getsize(f"{path}-wal"):
                raise
            from urllib.parse import quote

            connection.close()
            flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
            connection = apsw.Connection(f"file:{quote(os.path.abspath(path))}?immutable=1", flags=flags)
        yield connection
    except apsw.Error as error:
        raise FormatError(f"{path}: not a readable time-series file: {error}") from error
    finally:
        if connection is not None:
            connection.close()


def _series(connection: apsw.Connection, path: str) -> Iterator[Series]:
    columns = {row[0] for row in connection.execute(_QUERIES["columns"])}
    if not columns >= _NEEDED:
        missing = ", ".join(sorted(_NEEDED - columns))
        raise FormatError(f"{path}: no time-series file: job_resource_samples lacks {missing}")
    has_names = connection.execute(_QUERIES["has_names"]).get
    names = dict(connection.execute(_QUERIES["job_names"])) if has_names else {}
    has_own = connection.execute(_QUERIES["has_own_jobs"]).get
    own = dict(connection.execute(_QUERIES["own_jobs"])) if has_own else {}
    for job_id in [row[0] for row in connection.execute(_QUERIES["job_ids"])]:
        found = connection.execute(_QUERIES["samples"], (job_id,))
        rows = [_row(values, path, job_id) for values in found]
        yield Series(int(job_id), str(names.get(job_id, "")), rows, str(own.get(job_id, "")))


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
