"""Import of records and samples of other systems (or another joblens) into the store.

Everything imported has a UUID made from its content, so importing a file twice changes nothing.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import IO, Any

import msgspec
from msgspec import Struct, field, structs

from joblens.analysis.formats.gpu import read_gpu_facts
from joblens.analysis.formats.history import from_history_record
from joblens.analysis.formats.sample import from_sample_object
from joblens.analysis.numbers.sample_buffer import RunningSummary
from joblens.analysis.numbers.usage import total_usage
from joblens.model.errors import FormatError, InputError, UnknownJob
from joblens.model.jobs.details import Details, GpuFacts
from joblens.model.jobs.job import Attempt, Job, Outcome, Owner, Record, Status
from joblens.model.jobs.sample import Sample
from joblens.model.redaction.secrets import redact_job, redact_text
from joblens.model.values.ids import uuid_from
from joblens.model.values.json_text import decode_json
from joblens.model.values.units import format_bytes
from joblens.model.writes import DetailsTaken, JobEnded, JobQueued, JobStarted, SamplesTaken, Write
from joblens.ports.store import Store
from joblens.stores.sinks.time_series import OwnJob, Series, SeriesRow, read_time_series

_BATCH = 500
_SAMPLES_PER_WRITE = 2000
_MOST_JOBS = 100_000  # whose samples are read at once
_LONGEST_LINE = 1 << 24
_MOST_UNPACKED = 200  # times its size: samples are compressed to a twentieth or fortieth
_ALWAYS_UNPACKED = 1 << 24
_IMPORTED = "imported"
_MAX_BAD = 20
_UUID_LENGTH = 36
_GZIP_MAGIC = b"\x1f\x8b"
_SAMPLE_SOURCES = dict.fromkeys(
    (
        "cpu",
        "memory_parts",
        "io",
        "network",
        "gpu",
        "gpu_energy",
        "energy",
        "processor_counters",
        "cpu_migrations",
    ),
    "imported samples",
)
_OWN_SERIES_SOURCES = {
    "cpu": "imported rows",
    "processes": "imported rows",
    "memory_parts": "imported rows: anonymous, shared and kernel memory together",
}
_TORC_SOURCES = {
    "cpu": "imported; summed over the job's processes when sampled",
    "processes": "imported",
    "memory_rss_sum": "imported; summed over the job's processes when sampled",
}
_SUM_OF_RSS = "the file has the sum of its processes' sizes, in which shared memory is counted several times"
_TORC_UNKNOWN = {"memory_peak": _SUM_OF_RSS, "memory_parts": _SUM_OF_RSS}

Advance = Callable[[int], None]


class ImportResult(Struct, kw_only=True):
    """Result of an import. `bad` has the first problems, each with file and line."""

    jobs: int = 0
    samples: int = 0
    known: int = 0  # jobs that the store already had
    unfinished: int = 0  # skipped records of unfinished jobs
    bad_lines: int = 0
    bad: list[str] = field(default_factory=list)
    is_strict: bool = False

    def add_problem(self, where: str, error: Exception) -> None:
        problem = str(error) if str(error).startswith(where) else f"{where}: {error}"
        if self.is_strict:
            raise FormatError(problem, hint="without --strict, invalid lines are skipped and counted")
        self.bad_lines += 1
        if len(self.bad) < _MAX_BAD:
            self.bad.append(problem)


def import_history(store: Store, paths: Sequence[str], result: ImportResult, advance: Advance) -> None:
    """Reads lines of the history form; skips unfinished jobs."""
    batch: dict[str, list[Write]] = {}
    for path in paths:
        for number, line in lines_of(path, result):
            advance(1)
            try:
                fields = decode_json(line)
                record, details = from_history_record(fields), _details_of(fields)
            except (msgspec.DecodeError, FormatError, UnicodeDecodeError) as error:
                result.add_problem(f"{path}:{number}", error)
                continue
            if record.outcome is None:
                result.unfinished += 1
            elif record.job.uuid in batch or is_recorded(store, record):
                result.known += 1
            else:
                batch[record.job.uuid] = writes_of(record, details)
                result.jobs += 1
            if len(batch) >= _BATCH:
                store.apply([write for writes in batch.values() for write in writes])
                batch.clear()
    store.apply([write for writes in batch.values() for write in writes])


def _details_of(fields: dict[str, Any]) -> Details | None:
    """Raises FormatError."""
    if "details" not in fields:
        return None
    try:
        return msgspec.convert(fields["details"], Details)
    except msgspec.ValidationError as error:
        raise FormatError(f"details: {error}") from error


def writes_of(record: Record, details: Details | None) -> list[Write]:
    """Its output is not included, and a path in a file is not trusted. The file may contain secrets."""
    outcome = record.outcome
    assert outcome is not None
    outcome = structs.replace(
        outcome,
        error=redact_text(outcome.error) if outcome.error else outcome.error,
        stderr_tail=redact_text(outcome.stderr_tail),
    )
    writes: list[Write] = [JobQueued(redact_job(record.job))]
    if record.attempt is not None:
        writes.append(JobStarted(record.job.uuid, structs.replace(record.attempt, logs_dir="")))
    if details is not None:
        writes.append(DetailsTaken(record.job.uuid, details))
    return [*writes, JobEnded(record.job.uuid, outcome)]


def import_samples(store: Store, paths: Sequence[str], result: ImportResult, advance: Advance) -> None:
    """Reads files of the Joblet form, plain or gzip; a folder stands for all files below it. Memory use
    does not grow with the files."""
    jobs: dict[str, _SamplesOfJob] = {}
    try:
        for path in _sample_files(paths):
            _import_sample_file(store, path, jobs, result, advance)
    finally:
        for job in jobs.values():
            job.finish()


def _import_sample_file(
    store: Store, path: str, jobs: "dict[str, _SamplesOfJob]", result: ImportResult, advance: Advance
) -> None:
    for number, line in lines_of(path, result):
        advance(1)
        try:
            fields = decode_json(line)
            job_id = _job_id(fields, path)
            job = jobs.get(job_id)
            sample = from_sample_object(fields, None if job is None else job.last)
            gpus = read_gpu_facts(fields)
        except (msgspec.DecodeError, FormatError, UnicodeDecodeError) as error:
            result.add_problem(f"{path}:{number}", error)
            continue
        if job is None:
            if len(jobs) == _MOST_JOBS:
                raise InputError(f"{path}:{number}: samples of more than {_MOST_JOBS} jobs at once")
            is_uuid = _has_uuid_form(job_id)
            described = Job(
                uuid=job_id.lower() if is_uuid else uuid_from("samples", job_id),
                argv=(),
                created_at_us=sample.at_us,
                external_id=None if is_uuid else job_id,
            )
            job = jobs[job_id] = _SamplesOfJob(store, described, _SAMPLE_SOURCES, result)
        job.add(sample)
        job.gpus.update({each.id: each for each in gpus})


def import_time_series(store: Store, paths: Sequence[str], result: ImportResult, advance: Advance) -> None:
    for path in paths:
        try:
            for series in read_time_series(path):
                advance(len(series.rows))
                if series.rows:
                    _add_series(store, series, result)
        except FormatError as error:
            result.add_problem(path, error)


def _add_series(store: Store, series: Series, result: ImportResult) -> None:
    first_us = series.rows[0].at_us
    own = series.own
    if own is not None and _has_uuid_form(own.uuid):
        first_us = first_us if own.started_at_us is None else own.started_at_us
        job = Job(uuid=own.uuid.lower(), argv=(), created_at_us=first_us, name=series.job_name)
        _SamplesOfJob(store, job, _OWN_SERIES_SOURCES, result).add_all(_own_samples(series, own))
        return
    name = series.job_name or f"job {series.job_id}"
    job = Job(
        uuid=uuid_from("time-series", str(series.job_id), series.job_name, str(first_us)),
        argv=(),
        created_at_us=first_us,
        external_id=str(series.job_id),
        name=name,
    )
    _SamplesOfJob(store, job, _TORC_SOURCES, result, _TORC_UNKNOWN).add_all(_torc_samples(series))


def _torc_samples(series: Series) -> list[Sample]:
    """Memory in Torc's files is a sum of RSS, in which shared pages count several times."""
    return [
        Sample(
            at_us=row.at_us,
            elapsed_us=elapsed_us,
            cpu_total_usec=cpu_usec,
            memory_rss_sum_bytes=row.memory_bytes,
            processes=row.num_processes,
        )
        for row, elapsed_us, cpu_usec in _counted_up(series.rows, series.rows[0].at_us)
    ]


def _own_samples(series: Series, own: OwnJob) -> list[Sample]:
    """Memory in our files is unreclaimable memory, added up: it is stored as anonymous memory, which most
    of it is. Totals include the time before the first row and after the last."""
    started_us = series.rows[0].at_us if own.started_at_us is None else own.started_at_us
    samples = [
        Sample(
            at_us=row.at_us,
            elapsed_us=elapsed_us,
            cpu_total_usec=cpu_usec,
            memory_anon_bytes=row.memory_bytes,
            processes=row.num_processes,
        )
        for row, elapsed_us, cpu_usec in _counted_up(series.rows, started_us)
    ]
    if own.started_at_us is not None and own.started_at_us < samples[0].at_us:
        samples.insert(0, Sample(at_us=started_us, elapsed_us=0, cpu_total_usec=0))
    if own.ended_at_us is not None and own.ended_at_us > samples[-1].at_us:
        end_us = own.ended_at_us
        samples.append(Sample(at_us=end_us, elapsed_us=end_us - started_us, cpu_total_usec=own.cpu_usec))
    return samples


def _counted_up(rows: Sequence[SeriesRow], started_us: int) -> Iterator[tuple[SeriesRow, int, int]]:
    """Returns rows with the time since the start, and CPU shares summed up to a counter."""
    cpu_usec = 0.0
    before_us = started_us
    for row in rows:
        cpu_usec += (row.cpu_percent or 0.0) / 100 * (row.at_us - before_us)
        before_us = row.at_us
        yield row, row.at_us - started_us, round(cpu_usec)


class _SamplesOfJob:
    """Writes samples to the store, some thousands at a time, new ones after those it has of the job. They
    do not contain the outcome: the job is 'lost' until its record is imported too."""

    def __init__(
        self,
        store: Store,
        job: Job,
        sources: dict[str, str],
        result: ImportResult,
        unknown: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._store = store
        self._job = job
        self._sources, self._unknown = sources, unknown
        self._result = result
        self.gpus: dict[str, GpuFacts] = {}
        self._summary = RunningSummary()
        self._first: Sample | None = None
        self._waiting: list[Sample] = []
        found = _found(store, job.uuid)
        # A killed import has left it without an end.
        self._is_ours = found is None or (found.outcome is None and _is_imported(found))
        self._is_known = found is not None
        last = store.tails({job.uuid: -1}, 1).get(job.uuid, []) if found is not None else []
        self._next, self._newest_us = (last[-1][0] + 1, last[-1][1].at_us) if last else (0, -1)
        # It runs here: its own samples are being written.
        self._takes_none = not self._is_ours and not last and found is not None and found.outcome is None

    @property
    def last(self) -> Sample | None:
        return self._summary.last

    def add(self, sample: Sample) -> None:
        if self._first is None:
            self._first = sample
        self._summary.add(sample)
        if sample.at_us > self._newest_us and not self._takes_none:
            self._waiting.append(sample)
        if len(self._waiting) == _SAMPLES_PER_WRITE:
            self._write()

    def add_all(self, samples: Iterable[Sample]) -> None:
        for sample in samples:
            self.add(sample)
        self.finish()

    def finish(self) -> None:
        first, last = self._first, self._summary.last
        if first is None or last is None:
            return
        self._write()
        self._result.known += self._is_known
        self._result.jobs += not self._is_known
        if self._is_ours:
            self._store.apply([JobEnded(self._job.uuid, self._outcome(last))])
        if self.gpus and self._store.details(self._job.uuid).gpus is None:
            self._store.apply([DetailsTaken(self._job.uuid, Details(gpus=tuple(self.gpus.values())))])

    def _write(self) -> None:
        writes: list[Write] = []
        if self._first is not None and self._is_ours:  # changes nothing if it already exists
            writes += [JobQueued(redact_job(self._job)), JobStarted(self._job.uuid, _attempt(self._first))]
        if self._waiting:
            writes.append(SamplesTaken(self._job.uuid, self._next, tuple(self._waiting)))
        self._store.apply(writes)
        self._next += len(self._waiting)
        self._result.samples += len(self._waiting)
        self._waiting = []

    def _outcome(self, last: Sample) -> Outcome:
        return Outcome(
            status=Status.LOST,
            ended_at_us=last.at_us,
            duration_s=last.elapsed_us / 1e6,
            reason="imported",
            error="only samples were imported, so its outcome is unknown",
            usage=total_usage(
                self._summary.samples,
                None,
                accounting=_IMPORTED,
                sources=self._sources,
                unknown=self._unknown,
            ),
            samples=self._summary.count,
        )


def _attempt(first: Sample) -> Attempt:
    return Attempt(
        started_at_us=first.at_us - first.elapsed_us,
        owner=Owner(host="", pid=0, start_ticks=0, boot_id=""),
        accounting=_IMPORTED,
    )


def _is_imported(record: Record) -> bool:
    return record.attempt is not None and record.attempt.accounting == _IMPORTED


def _found(store: Store, uuid: str) -> Record | None:
    try:
        return store.find(uuid)
    except UnknownJob:
        return None


def is_recorded(store: Store, record: Record) -> bool:
    """Returns whether it is in the store with an outcome that this record could not improve."""
    try:
        return store.find(record.job.uuid).status is not Status.LOST or record.status is Status.LOST
    except UnknownJob:
        return False


def _job_id(fields: Any, path: str) -> str:
    """From the sample, or the name of the file's folder."""
    if isinstance(fields, dict):
        for key in ("job_id", "job_uuid", "jobId", "uuid"):
            value = fields.get(key)
            if isinstance(value, str) and value:
                return value
    folder = os.path.basename(os.path.dirname(os.path.abspath(path)))
    if _has_uuid_form(folder):
        return folder
    raise FormatError("the sample has no 'job_id', and its directory is not named after a job")


def _has_uuid_form(text: str) -> bool:
    return len(text) == _UUID_LENGTH and text.count("-") == 4


def _sample_files(paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        if not os.path.isdir(path):
            yield path
            continue
        found = [
            os.path.join(folder, name)
            for folder, _, names in os.walk(path)
            for name in names
            if name.endswith((".jsonl.gz", ".jsonl")) and os.path.isfile(os.path.join(folder, name))
        ]
        if not found:
            raise InputError(f"{path}: no .jsonl.gz or .jsonl files below it")
        yield from sorted(found)


def lines_of(path: str, result: ImportResult) -> Iterator[tuple[int, bytes]]:
    """Yields (number, line) of every line that is not blank; gzip is detected by its first bytes."""
    try:
        with open(path, "rb") as raw:
            is_gzip = raw.peek(2)[:2] == _GZIP_MAGIC
            for number, line in enumerate(_unpacked(raw) if is_gzip else _lines(raw), start=1):
                if line.strip():
                    yield number, line
    except _TornFile as torn:  # everything before its damaged end was returned
        result.add_problem(path, torn)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error


class _TornFile(FormatError):
    """A compressed file that is truncated or damaged."""


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    number = 0
    while line := stream.readline(_LONGEST_LINE + 1):
        number += 1
        if len(line) > _LONGEST_LINE:
            raise _TornFile(
                f"line {number} is longer than {format_bytes(_LONGEST_LINE)}; the rest is skipped"
            )
        yield line


class _Counted:
    """A stream that counts the bytes read from it."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self.count = 0

    def read(self, size: int = -1) -> bytes:
        data = self._raw.read(size)
        self.count += len(data)
        return data


def _unpacked(raw: IO[bytes]) -> Iterator[bytes]:
    import gzip
    import io
    import zlib

    packed, size = _Counted(raw), 0
    try:
        for line in _lines(io.BufferedReader(gzip.GzipFile(fileobj=packed))):  # type: ignore[call-overload]
            size += len(line)
            if size > max(_ALWAYS_UNPACKED, _MOST_UNPACKED * packed.count):
                raise _TornFile(f"unpacks to more than {_MOST_UNPACKED} times its size; the rest is skipped")
            yield line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _TornFile from error
