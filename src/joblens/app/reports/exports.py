"""Exports of records and samples from the store: JSON, CSV, Parquet and other files."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

from msgspec import Struct, json

from joblens.analysis.formats.history import returncode_of, to_history_record, where_it_ran
from joblens.analysis.formats.sample import to_sample_object
from joblens.files.atomic import output_path
from joblens.files.private import make_private_folder
from joblens.model.errors import InputError, StoreError
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import USAGE_NUMBERS, Record, Usage
from joblens.model.jobs.sample import SAMPLE_COLUMNS, SAMPLE_TABLES, Sample
from joblens.model.values.units import counted, format_instant
from joblens.ports.store import Store

_NO_USAGE = Usage()

# column -> kind: int, float, text, bool, time (µs UTC)
JOB_COLUMNS: dict[str, str] = {
    "job_uuid": "text",
    "number": "int",
    "task_id": "text",
    "name": "text",
    "tool": "text",
    "script": "text",
    "status": "text",
    "reason": "text",
    "created_time": "time",
    "start_time": "time",
    "end_time": "time",
    "duration_seconds": "float",
    "returncode": "int",
    "signal": "int",
    "error": "text",
    "command": "text",
    "params": "text",
    "tags": "text",
    "user": "text",
    "host": "text",
    "engine": "text",
    "nodes": "text",
    "cluster_job_id": "text",
    "node_id": "text",
    "worker": "text",
    "accounting": "text",
    "samples": "int",
    **dict.fromkeys(USAGE_NUMBERS, "int"),
    "lower_bounds": "text",
    "estimates": "text",
    "memory_peak_basis": "text",
}
SAMPLE_TABLE_COLUMNS: dict[str, str] = {
    "job_uuid": "text",
    "index": "int",
    **{name: "time" if name == "at_us" else "int" for name in SAMPLE_COLUMNS},
    **dict.fromkeys(SAMPLE_TABLES, "text"),
}


def job_row(record: Record) -> list[Any]:
    """Returns values in the order of JOB_COLUMNS; lists and objects as JSON text."""
    job, attempt, outcome = record.job, record.attempt, record.outcome
    usage = _NO_USAGE if outcome is None else outcome.usage
    where = where_it_ran(record)
    head = [
        job.uuid,
        record.number,
        job.external_id or job.uuid,
        job.name,
        job.tool,
        job.script,
        record.status.value,
        None if outcome is None else outcome.reason,
        job.created_at_us,
        None if attempt is None else attempt.started_at_us,
        None if outcome is None else outcome.ended_at_us,
        None if outcome is None else outcome.duration_s,
        None if outcome is None else returncode_of(outcome),
        None if outcome is None else outcome.signal,
        None if outcome is None else outcome.error,
        _text(job.argv),
        _text(job.params),
        _text(job.tags),
        job.user,
        where.host,
        where.engine,
        ",".join(where.nodes),
        where.cluster_job_id,
        where.node_id,
        where.worker,
        None if attempt is None else attempt.accounting,
        None if outcome is None else outcome.samples,
    ]
    marks = [_text(usage.lower_bounds), _text(usage.estimates), usage.memory_peak_basis]
    return [*head, *(getattr(usage, name) for name in USAGE_NUMBERS), *marks]


def sample_row(uuid: str, index: int, sample: Sample) -> list[Any]:
    """Returns values in the order of SAMPLE_TABLE_COLUMNS; tables as JSON text."""
    tables = (getattr(sample, name) for name in SAMPLE_TABLES)
    texts = (None if table is None else _text(table) for table in tables)
    return [uuid, index, *(getattr(sample, name) for name in SAMPLE_COLUMNS), *texts]


def _text(value: Any) -> str:
    return json.encode(value).decode()


Advance = Callable[[int], None]  # gets the number of jobs done since the last call

_GZIP_LEVEL = 6
_NO_DETAILS = Details()


class ExportResult(Struct, frozen=True, kw_only=True):
    jobs: int = 0
    rows: int = 0
    files: tuple[str, ...] = ()
    note: str = ""  # a sentence about changes on the way


@contextmanager
def output_file(path: str) -> Iterator[IO[bytes]]:
    """The file gets its name once it is complete; only its owner may read it."""
    with _output_path(path) as part, open(part, "wb") as file:
        yield file


@contextmanager
def _output_path(path: str) -> Iterator[str]:
    if path == "-":
        raise InputError("-: standard output cannot be used here", hint="name a file")
    if os.path.isdir(path):
        raise InputError(f"{path}: cannot be written: it is a directory")
    try:
        with output_path(path) as part:
            yield part
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error


def export_history(
    store: Store, records: Iterable[Record], file: IO[bytes], advance: Advance
) -> ExportResult:
    """Writes one JSON object per line, with the job's details if there are any."""
    count = 0
    for record in records:
        form = to_history_record(record)
        details = store.details(record.job.uuid)
        if details != _NO_DETAILS:
            form["details"] = details
        file.write(json.encode(form) + b"\n")
        count += 1
        advance(1)
    return ExportResult(jobs=count, rows=count)


def export_job_samples(store: Store, record: Record, file: IO[bytes]) -> int:
    """Writes one JSON object per line, in the Joblet form."""
    previous = None
    count = 0
    gpus = store.details(record.job.uuid).gpus or ()
    for _, sample in store.samples(record.job.uuid):
        file.write(json.encode(to_sample_object(sample, previous, record, gpus)) + b"\n")
        previous = sample
        count += 1
    return count


def export_samples(store: Store, records: Iterable[Record], folder: str, advance: Advance) -> ExportResult:
    """Writes <folder>/<uuid>/<start>.jsonl.gz for every job that has samples."""
    files: list[str] = []
    rows = 0
    for record in records:
        if store.samples(record.job.uuid):
            path = os.path.join(folder, record.job.uuid, f"{_stamp(record)}.jsonl.gz")
            try:
                make_private_folder(os.path.dirname(path))
            except OSError as error:
                raise InputError(f"{os.path.dirname(path)}: cannot be created: {error.strerror}") from error
            with output_file(path) as file:
                rows += export_gzip_samples(store, record, file)
            files.append(path)
        advance(1)
    return ExportResult(jobs=len(files), rows=rows, files=tuple(files))


def export_gzip_samples(store: Store, record: Record, file: IO[bytes]) -> int:
    import gzip

    # No time in the header: the same samples give the same bytes.
    with gzip.GzipFile("", "wb", _GZIP_LEVEL, file, mtime=0) as packed:
        return export_job_samples(store, record, packed)  # type: ignore[arg-type]


def export_time_series(store: Store, records: Iterable[Record], path: str, advance: Advance) -> ExportResult:
    from joblens.stores.sinks.time_series import TimeSeriesWriter, add_job

    try:
        writer = TimeSeriesWriter(path)
    except StoreError as error:
        hint = "give a new file, or a time-series file to append to"
        raise InputError(str(error), hint=hint) from error
    jobs = rows = incomplete = 0
    for record in records:
        samples = [sample for _, sample in store.samples(record.job.uuid)]
        if samples and record.number is not None:
            added = add_job(writer, record, samples)
            incomplete += max(0, len(samples) - 2 - added)
            rows += added
            jobs += 1
        advance(1)
    writer.close()
    unknown = "their CPU time, memory or number of processes is unknown"
    note = f"{counted(incomplete, 'sample')} skipped: {unknown}" if incomplete else ""
    return ExportResult(jobs=jobs, rows=rows, files=(path,), note=note)


def arrow_stream(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> bytes:
    """Raises MissingExtra without pyarrow."""
    from joblens.stores.sinks import parquet

    return parquet.arrow_stream(columns, rows)


class Table(Struct, frozen=True):
    """Jobs or samples as rows, built while reading."""

    kinds: dict[str, str]
    rows: Iterator[list[Any]]


def jobs_table(records: Iterable[Record], advance: Advance) -> Table:
    return Table(JOB_COLUMNS, _job_rows(records, advance))


def samples_table(store: Store, records: Iterable[Record], advance: Advance) -> Table:
    return Table(SAMPLE_TABLE_COLUMNS, _sample_rows(store, records, advance))


def _job_rows(records: Iterable[Record], advance: Advance) -> Iterator[list[Any]]:
    for record in records:
        yield job_row(record)
        advance(1)


def _sample_rows(store: Store, records: Iterable[Record], advance: Advance) -> Iterator[list[Any]]:
    for record in records:
        for index, sample in store.samples(record.job.uuid):
            yield sample_row(record.job.uuid, index, sample)
        advance(1)


def export_csv(table: Table, file: IO[bytes]) -> ExportResult:
    """Times as ISO 8601, unknown values empty."""
    import csv

    writer = csv.writer(_Utf8(file), lineterminator="\n")
    writer.writerow(table.kinds)
    times = [column for column, kind in enumerate(table.kinds.values()) if kind == "time"]
    count = 0
    for row in table.rows:
        for column in times:
            if row[column] is not None:
                row[column] = format_instant(row[column])
        writer.writerow(row)
        count += 1
    return ExportResult(rows=count)


class _Utf8:
    """Writes text to a file of bytes. io.TextIOWrapper would close the file, which may be standard
    output."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, text: str) -> None:
        self._file.write(text.encode("utf-8", "backslashreplace"))


def export_parquet(table: Table, path: str) -> ExportResult:
    from joblens.stores.sinks.parquet import write_parquet

    with _output_path(path) as temporary:
        count = write_parquet(temporary, table.kinds, table.rows)
    return ExportResult(rows=count, files=(path,))


def _stamp(record: Record) -> str:
    """Returns 20251004-153045, as in file names of samples."""
    started_at_us = record.attempt.started_at_us if record.attempt else record.job.created_at_us
    text = format_instant(started_at_us)
    return f"{text[:10].replace('-', '')}-{text[11:19].replace(':', '')}"
