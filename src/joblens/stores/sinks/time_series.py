"""Time-series file in Torc's form: one SQLite file with `job_resource_samples` and `job_metadata`."""

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

import apsw
import msgspec
from msgspec import Struct, structs

from joblens.analysis.formats.sample import is_summed_rss, time_series_rows
from joblens.files.private import make_private_file, make_private_folder
from joblens.model.errors import FormatError, StoreError
from joblens.model.jobs.job import Record
from joblens.model.jobs.sample import Sample
from joblens.stores.sql import Queries

_NEEDED = {"job_id", "timestamp", "cpu_percent", "memory_bytes", "num_processes"}
_NEEDED_OF_HOST = {"timestamp", "cpu_percent", "memory_bytes"}

with open(os.path.join(os.path.dirname(__file__), "time_series.sql"), encoding="utf-8") as _file:
    _QUERIES = Queries.parse(_file.read())

# at_us, cpu_percent, memory_bytes, num_processes
Row = tuple[int, float, int, int]
# timestamp in s, cpu_percent of the whole machine, used memory, total memory; None: unknown
HostRow = tuple[int, float | None, int | None, int | None]


class SeriesRow(Struct, frozen=True):
    at_us: int
    cpu_percent: float | None
    memory_bytes: int | None
    num_processes: int | None


class OwnJob(Struct, frozen=True):
    """Job measured by joblens: its rows have memory that cannot be reclaimed.

    The other fields are unknown in files of older versions.
    """

    uuid: str
    started_at_us: int | None = None
    ended_at_us: int | None = None
    cpu_usec: int | None = None


class Series(Struct, frozen=True):
    job_id: int
    job_name: str
    rows: list[SeriesRow]
    own: OwnJob | None = None  # None: another program wrote the rows


class TimeSeriesWriter:
    """Adds to the file if it exists; writing a job again replaces its rows."""

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            make_private_file(path)
            self._connection = apsw.Connection(path)
            self._connection.execute(_QUERIES["begin"])
            _make_tables(self._connection)
        except apsw.Error as error:
            raise StoreError(f"{path}: cannot be written as a time-series file: {error}") from error
        except OSError as error:
            raise StoreError(f"{path}: cannot be written: {error.strerror}") from error

    def add(self, job_id: int, job_name: str, own: OwnJob | None, rows: Iterable[Row]) -> int:
        """Returns the number of rows written for the job."""
        listed = [(job_id, *divmod(at_us, 1_000_000), *numbers) for at_us, *numbers in rows]
        with self._errors():
            self._connection.execute(_QUERIES["put_job"], (job_id, job_name))
            if own is not None:
                self._connection.execute(_QUERIES["clear_own_samples"], (job_id,))
                self._connection.execute(_QUERIES["put_own_job"], (job_id, *structs.astuple(own)))
            self._connection.executemany(_QUERIES["put_sample"], listed)
        return len(listed)

    def add_host(self, rows: Iterable[HostRow]) -> None:
        """Adds the machine's own numbers while a job ran.

        A number that is always unknown was not requested and is 0, as in Torc; rows that lack another number
        are skipped.
        """
        listed = list(rows)
        is_measured = [any(row[at] is not None for row in listed) for at in range(4)]
        complete = [
            tuple(value or 0 for value in row)
            for row in listed
            if all(value is not None or not is_measured[at] for at, value in enumerate(row))
        ]
        with self._errors():
            self._connection.executemany(_QUERIES["put_host_sample"], complete)
            self._connection.executemany(_QUERIES["raise_host_sample"], complete)

    def has_other_jobs(self, own: Collection[str]) -> bool:
        """Whether the file has jobs with another UUID, or from another program."""
        with self._errors():
            return any(uuid not in own for (uuid,) in self._connection.execute(_QUERIES["uuids_of_jobs"]))

    def abandon(self) -> None:
        """Leaves the file as it was."""
        with self._errors():
            self._connection.execute(_QUERIES["rollback"])
            self._connection.close()

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


def remove_jobs(path: str, uuids: Collection[str]) -> int:
    """Removes the rows of deleted jobs that joblens measured, and the file with its last job.
    Returns how many jobs there were. Numbers of the whole machine stay."""
    try:
        connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            if not _columns(connection, "joblens_jobs"):
                return 0
            connection.execute(_QUERIES["begin"])
            wanted = msgspec.json.encode(sorted(uuids)).decode()
            found = connection.execute(_QUERIES["ids_of_uuids"], (wanted,)).fetchall()
            for query in ("remove_samples", "remove_job", "remove_own_job"):
                connection.executemany(_QUERIES[query], found)
            left: int = connection.execute(_QUERIES["count_jobs"]).get
            connection.execute(_QUERIES["commit"])
        finally:
            connection.close()
        if found and not left:
            os.unlink(path)
    except apsw.Error as error:
        raise StoreError(f"{path}: {error}") from error
    return len(found)


def _make_tables(connection: apsw.Connection) -> None:
    """Creates the tables, or converts those of Torc or an older joblens."""
    samples, jobs, summary = (
        _columns(connection, table)
        for table in ("job_resource_samples", "joblens_jobs", "system_resource_summary")
    )
    has_older_samples = bool(samples) and "microsecond" not in samples
    if has_older_samples:
        connection.execute(_QUERIES["set_old_samples_aside"])
    if jobs and "cpu_usec" not in jobs:
        connection.execute(_QUERIES["add_job_columns"])
    if summary and "id" not in summary:
        connection.execute(_QUERIES["replace_host_summary"])
    connection.execute(_QUERIES["schema"])
    if has_older_samples:
        connection.execute(_QUERIES["take_old_samples_over"])


def _columns(connection: apsw.Connection, table: str) -> set[str]:
    return {row[0] for row in connection.execute(_QUERIES["columns"], (table,))}


def read_time_series(path: str) -> Iterator[Series]:
    """Reads every job of the file. Raises FormatError if it is not a time-series file."""
    if not os.path.isfile(path):
        raise FormatError(f"{path}: no such file")
    with _opened(path) as connection:
        yield from _series(connection, path)


def read_host_series(path: str) -> list[SeriesRow]:
    """Reads the machine's own numbers; empty if the file has no such table.

    CPU: 100 is all cores. A column of zeros was not measured.
    """
    with _opened(path) as connection:
        columns = _columns(connection, "system_resource_samples")
        found = list(connection.execute(_QUERIES["host_samples"])) if columns >= _NEEDED_OF_HOST else []
    rows = [_row(values, path, "of the machine") for values in found]
    has_cpu, has_memory = any(row.cpu_percent for row in rows), any(row.memory_bytes for row in rows)
    return [
        SeriesRow(
            row.at_us, row.cpu_percent if has_cpu else None, row.memory_bytes if has_memory else None, None
        )
        for row in rows
    ]


@contextmanager
def _opened(path: str) -> Iterator[apsw.Connection]:
    """Opens the file for reading.

    SQLite can read a file with a write-ahead log in a read-only folder only if it is declared
    immutable. Without a log that has content, it is.
    """
    connection = None
    try:
        connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        try:
            _columns(connection, "job_resource_samples")
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
    columns = _columns(connection, "job_resource_samples")
    if not columns >= _NEEDED:
        missing = ", ".join(sorted(_NEEDED - columns))
        raise FormatError(f"{path}: no time-series file: job_resource_samples lacks {missing}")
    has_names = bool(_columns(connection, "job_metadata"))
    names = dict(connection.execute(_QUERIES["job_names"])) if has_names else {}
    own = _own_jobs(connection)
    query = _QUERIES["samples" if "microsecond" in columns else "samples_by_the_second"]
    for job_id in [row[0] for row in connection.execute(_QUERIES["job_ids"])]:
        rows = [_row(values, path, job_id) for values in connection.execute(query, (job_id,))]
        yield Series(int(job_id), str(names.get(job_id, "")), rows, own.get(job_id))


def _own_jobs(connection: apsw.Connection) -> dict[int, OwnJob]:
    columns = _columns(connection, "joblens_jobs")
    if not columns:
        return {}
    query = _QUERIES["own_jobs" if "cpu_usec" in columns else "older_own_jobs"]
    return {
        job_id: OwnJob(str(uuid), *(_whole(number) for number in numbers))
        for job_id, uuid, *numbers in connection.execute(query)
    }


def _row(values: tuple[object, ...], path: str, job_id: object) -> SeriesRow:
    at_s, microsecond, cpu_percent, memory_bytes, processes = values
    if not isinstance(at_s, int | float) or not isinstance(microsecond, int):
        raise FormatError(f"{path}: job {job_id} has a row whose timestamp is no number: {at_s!r}")
    for value in (cpu_percent, memory_bytes, processes):
        if value is not None and not isinstance(value, int | float):
            raise FormatError(f"{path}: job {job_id} has a row that is not made of numbers: {values}")
    at_us = round(at_s * 1_000_000) + microsecond
    return SeriesRow(at_us, _amount(cpu_percent), _whole(memory_bytes), _whole(processes))


def _amount(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and value >= 0 else None


def _whole(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and value >= 0 else None


def write_time_series(path: str, jobs: Iterable[tuple[Record, Sequence[Sample]]]) -> int:
    """Adds jobs to the file. Returns the number of rows written for the jobs. Raises StoreError."""
    writer = _open_writer(path)
    rows = sum(add_job(writer, record, samples) for record, samples in jobs)
    writer.close()
    return rows


def _open_writer(path: str) -> TimeSeriesWriter:
    folder = os.path.dirname(os.path.abspath(path))
    try:
        make_private_folder(folder)
    except OSError as error:
        raise StoreError(f"{folder}: cannot be created: {error.strerror}") from error
    return TimeSeriesWriter(path)


def write_own_time_series(
    path: str, suffix: str, own: Collection[str], jobs: Iterable[tuple[Record, Sequence[Sample]]]
) -> str:
    """Writes the file;
    if it has jobs whose UUIDs are not in `own`, writes one with a suffix to its name instead.

    Returns its path. Raises StoreError.
    """
    writer = _open_writer(path)
    if writer.has_other_jobs(own):  # decided under the file's lock: one of two writers is first
        writer.abandon()
        stem, ending = os.path.splitext(path)
        path = f"{stem}-{suffix}{ending}"
        writer = TimeSeriesWriter(path)
    for record, samples in jobs:
        add_job(writer, record, samples)
    writer.close()
    return path


def add_job(writer: TimeSeriesWriter, record: Record, samples: Sequence[Sample]) -> int:
    """Adds rows of a job and of its machine. Returns the number of the job's rows."""
    name = record.job.name or record.job.external_id or record.job.uuid
    own = None if is_summed_rss(samples) else _own_job(record, samples)
    rows = writer.add(record.number or 0, name, own, time_series_rows(samples, record))
    writer.add_host(host_rows(samples))
    return rows


def _own_job(record: Record, samples: Sequence[Sample]) -> OwnJob:
    if not samples:
        return OwnJob(record.job.uuid)
    return OwnJob(record.job.uuid, samples[0].at_us, samples[-1].at_us, samples[-1].cpu_total_usec)


def host_rows(samples: Sequence[Sample]) -> list[HostRow]:
    """Returns the machine's rows.

    CPU is the busy share of all processors since the sample before; the first has none.
    """
    rows: list[HostRow] = []
    previous: Sample | None = None
    for sample in samples:
        if sample.host_memory_used_bytes is not None or sample.host_cpu_total_usec is not None:
            rows.append(
                (
                    sample.at_us // 1_000_000,
                    _busy_percent(previous, sample),
                    sample.host_memory_used_bytes,
                    sample.host_memory_total_bytes,
                )
            )
        previous = sample
    return rows


def _busy_percent(earlier: Sample | None, later: Sample) -> float | None:
    if earlier is None or earlier.host_cpu_busy_usec is None or earlier.host_cpu_total_usec is None:
        return None
    if later.host_cpu_busy_usec is None or later.host_cpu_total_usec is None:
        return None
    total = later.host_cpu_total_usec - earlier.host_cpu_total_usec
    return 100.0 * (later.host_cpu_busy_usec - earlier.host_cpu_busy_usec) / total if total > 0 else None
