"""Records and samples that other systems (or another joblens) wrote, into the store.

Everything imported has a UUID made from its content, so importing a file twice changes nothing."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import IO, Any

import msgspec
from msgspec import Struct, field, structs

from joblens.analysis.gpu_form import read_gpu_facts
from joblens.analysis.history_form import from_history_record
from joblens.analysis.sample_form import from_sample_object
from joblens.analysis.usage import total_usage
from joblens.model.details import Details, GpuFacts
from joblens.model.errors import FormatError, InputError, UnknownJob
from joblens.model.ids import uuid_from
from joblens.model.job import Attempt, Job, Outcome, Owner, Record, Status
from joblens.model.sample import Sample
from joblens.model.secrets import redact_job, redact_text
from joblens.model.writes import DetailsTaken, JobEnded, JobQueued, JobStarted, SamplesTaken, Write
from joblens.ports.store import Store
from joblens.stores.time_series import OwnJob, Series, SeriesRow, read_time_series

_BATCH = 500
_SAMPLES_A_WRITE = 2000
_BAD_KEPT = 20
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


class Imported(Struct, kw_only=True):
    """What came of it. `bad` has the first problems, each with file and line."""

    jobs: int = 0
    samples: int = 0
    known: int = 0  # jobs that were in the store already
    unfinished: int = 0  # records of jobs that had not ended, left out
    bad_lines: int = 0
    bad: list[str] = field(default_factory=list)
    is_strict: bool = False

    def complain(self, where: str, error: Exception) -> None:
        problem = str(error) if str(error).startswith(where) else f"{where}: {error}"
        if self.is_strict:
            raise FormatError(problem, hint="without --strict such lines are left out and counted")
        self.bad_lines += 1
        if len(self.bad) < _BAD_KEPT:
            self.bad.append(problem)


def import_history(store: Store, paths: Sequence[str], result: Imported, advance: Advance) -> None:
    """Lines of the history form; jobs that had not ended are left out."""
    batch: dict[str, list[Write]] = {}
    for path in paths:
        for number, line in lines_of(path, result):
            advance(1)
            try:
                fields = msgspec.json.decode(line)
                record, details = from_history_record(fields), _details_of(fields)
            except (msgspec.DecodeError, FormatError, UnicodeDecodeError) as error:
                result.complain(f"{path}:{number}", error)
                continue
            if record.outcome is None:
                result.unfinished += 1
            elif record.job.uuid in batch or is_settled(store, record):
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
    """Its output did not come along, and a path written in a file is not to be trusted. Who wrote the file
    may not have taken secrets out."""
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


def import_samples(store: Store, paths: Sequence[str], result: Imported, advance: Advance) -> None:
    """Files of the Joblet form, plain or gzip; a folder stands for all files below it."""
    by_job: dict[str, list[Sample]] = {}
    gpus: dict[str, dict[str, GpuFacts]] = {}
    for path in _sample_files(paths):
        last: dict[str, Sample] = {}
        for number, line in lines_of(path, result):
            advance(1)
            try:
                fields = msgspec.json.decode(line)
                job_id = _job_id(fields, path)
                sample = from_sample_object(fields, _before(by_job, last, job_id))
                found = read_gpu_facts(fields)
            except (msgspec.DecodeError, FormatError, UnicodeDecodeError) as error:
                result.complain(f"{path}:{number}", error)
                continue
            last[job_id] = sample
            gpus.setdefault(job_id, {}).update({each.id: each for each in found})
            by_job.setdefault(job_id, []).append(sample)
    for job_id, samples in by_job.items():
        is_uuid = _looks_like_uuid(job_id)
        job = Job(
            uuid=job_id.lower() if is_uuid else uuid_from("samples", job_id),
            argv=(),
            created_at_us=samples[0].at_us,
            external_id=None if is_uuid else job_id,
        )
        _add_samples(store, job, samples, _SAMPLE_SOURCES, result)
        if gpus[job_id] and store.details(job.uuid).gpus is None:
            store.apply([DetailsTaken(job.uuid, Details(gpus=tuple(gpus[job_id].values())))])


def _before(by_job: dict[str, list[Sample]], last: dict[str, Sample], job_id: str) -> Sample | None:
    """The sample before in this file, or the last one of the job's file before it."""
    if job_id in last:
        return last[job_id]
    return by_job[job_id][-1] if by_job.get(job_id) else None


def import_time_series(store: Store, paths: Sequence[str], result: Imported, advance: Advance) -> None:
    for path in paths:
        try:
            for series in read_time_series(path):
                advance(len(series.rows))
                if series.rows:
                    _add_series(store, series, result)
        except FormatError as error:
            result.complain(path, error)


def _add_series(store: Store, series: Series, result: Imported) -> None:
    first_us = series.rows[0].at_us
    own = series.own
    if own is not None and _looks_like_uuid(own.uuid):
        first_us = first_us if own.started_at_us is None else own.started_at_us
        job = Job(uuid=own.uuid.lower(), argv=(), created_at_us=first_us, name=series.job_name)
        _add_samples(store, job, _own_samples(series, own), _OWN_SERIES_SOURCES, result)
        return
    name = series.job_name or f"job {series.job_id}"
    job = Job(
        uuid=uuid_from("time-series", str(series.job_id), series.job_name, str(first_us)),
        argv=(),
        created_at_us=first_us,
        external_id=str(series.job_id),
        name=name,
    )
    _add_samples(store, job, _torc_samples(series), _TORC_SOURCES, result, _TORC_UNKNOWN)


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
    """Memory in our files cannot be reclaimed, its parts added up: it stands with the anonymous memory, which
    it mostly is. What lies before the first row and after the last is known beside the rows."""
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
    """Rows with the time since the start and CPU shares added up to a counter again."""
    cpu_usec = 0.0
    before_us = started_us
    for row in rows:
        cpu_usec += (row.cpu_percent or 0.0) / 100 * (row.at_us - before_us)
        before_us = row.at_us
        yield row, row.at_us - started_us, round(cpu_usec)


def _add_samples(
    store: Store,
    job: Job,
    samples: Sequence[Sample],
    sources: dict[str, str],
    result: Imported,
    unknown: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """New ones behind those the store has of this job."""
    is_known = _is_known(store, job.uuid)
    stored = store.samples(job.uuid) if is_known else []
    newest_us = stored[-1][1].at_us if stored else -1
    fresh = [sample for sample in samples if sample.at_us > newest_us]
    if is_known:
        result.known += 1
        if not stored and store.find(job.uuid).outcome is None:
            fresh = []  # it is running here: its own samples are on their way
    else:
        store.apply(_imported_job(job, samples, sources, unknown))
        result.jobs += 1
    first = stored[-1][0] + 1 if stored else 0
    for offset in range(0, len(fresh), _SAMPLES_A_WRITE):
        part = tuple(fresh[offset : offset + _SAMPLES_A_WRITE])
        store.apply([SamplesTaken(job.uuid, first + offset, part)])
    result.samples += len(fresh)


def _imported_job(
    job: Job, samples: Sequence[Sample], sources: dict[str, str], unknown: Mapping[str, str]
) -> list[Write]:
    """Samples do not tell how a job ended: it is 'lost' until its record is imported too."""
    first, last = samples[0], samples[-1]
    attempt = Attempt(
        started_at_us=first.at_us - first.elapsed_us,
        owner=Owner(host="", pid=0, start_ticks=0, boot_id=""),
        accounting="imported",
    )
    outcome = Outcome(
        status=Status.LOST,
        ended_at_us=last.at_us,
        duration_s=last.elapsed_us / 1e6,
        reason="imported",
        error="only samples were imported; they do not tell how the job ended",
        usage=total_usage(samples, None, accounting="imported", sources=sources, unknown=unknown),
        samples=len(samples),
    )
    return [JobQueued(redact_job(job)), JobStarted(job.uuid, attempt), JobEnded(job.uuid, outcome)]


def _is_known(store: Store, uuid: str) -> bool:
    try:
        store.find(uuid)
    except UnknownJob:
        return False
    return True


def is_settled(store: Store, record: Record) -> bool:
    """In the store, and with an end that this record could not improve."""
    try:
        return store.find(record.job.uuid).status is not Status.LOST or record.status is Status.LOST
    except UnknownJob:
        return False


def _job_id(fields: Any, path: str) -> str:
    """Written in the sample, or the name of the folder the file is in."""
    if isinstance(fields, dict):
        for key in ("job_id", "job_uuid", "jobId", "uuid"):
            value = fields.get(key)
            if isinstance(value, str) and value:
                return value
    folder = os.path.basename(os.path.dirname(os.path.abspath(path)))
    if _looks_like_uuid(folder):
        return folder
    raise FormatError("the sample names no job ('job_id') and its folder has no job's name")


def _looks_like_uuid(text: str) -> bool:
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
            if name.endswith((".jsonl.gz", ".jsonl"))
        ]
        if not found:
            raise InputError(f"{path}: no .jsonl.gz or .jsonl files below it")
        yield from sorted(found)


def lines_of(path: str, result: Imported) -> Iterator[tuple[int, bytes]]:
    """(number, line) of every line that is not blank; gzip is recognised by its first bytes."""
    try:
        with open(path, "rb") as raw:
            is_gzip = raw.read(2) == _GZIP_MAGIC
            raw.seek(0)
            for number, line in enumerate(_unpacked(raw) if is_gzip else raw, start=1):
                if line.strip():
                    yield number, line
    except _TornFile as torn:  # what came before its torn end has been handed out
        result.complain(path, torn)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error


class _TornFile(FormatError):
    """A compressed file that is cut off or damaged."""


def _unpacked(raw: IO[bytes]) -> Iterator[bytes]:
    import gzip
    import zlib

    try:
        yield from gzip.GzipFile(fileobj=raw)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _TornFile from error
