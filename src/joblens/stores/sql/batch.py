"""Batch of writes: grouped by job, with rows of runs and changes to the stored sums. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import astuple, replace

from joblens.analysis.numbers.statistics import bucket_of, distribution, merge
from joblens.files.zstd import ZstdCompressor, ZstdDecompressor, ZstdError
from joblens.model.errors import StoreCorrupt
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import Status
from joblens.model.writes import (
    AuditNoted,
    CancelAsked,
    DetailsTaken,
    JobAnnotated,
    JobQueued,
    JobStarted,
    ProvenanceSeen,
    RunCreated,
    RunNoted,
    SamplesTaken,
    TicketMade,
    WorkflowCreated,
)

if TYPE_CHECKING:
    from joblens.model.history import Distribution, GroupStatistics, HistoryQuery, Statistics
    from joblens.model.jobs.job import Attempt, Job, Outcome
    from joblens.model.jobs.sample import Sample
    from joblens.model.runs.run import Run, RunEvent, Workflow
    from joblens.model.writes import JobEnded, Write

METRICS = ("duration", "cpu", "memory")
UNITS = {"duration": 1_000_000, "cpu": 1_000_000, "memory": 1}  # stored units per displayed unit


# An ended job as the statistics count it, and as queries return it: tool, status and METRICS.
EndedJob = tuple[str, str, int | None, int | None, int | None]


class Ending(Struct, frozen=True):
    """Columns of a job's row that its outcome sets."""

    ended_at_us: int | None = None
    duration_us: int | None = None
    cpu_usec: int | None = None
    memory_bytes: int | None = None
    exit_code: int | None = None
    reason: str | None = None

    def as_counted(self, tool: str, status: Status) -> EndedJob:
        return tool, status.value, self.duration_us, self.cpu_usec, self.memory_bytes

    def row(self) -> tuple[int | str | None, ...]:
        return astuple(self)


class Sum:
    """One metric of one group of jobs."""

    __slots__ = ("buckets", "count", "largest", "total")

    def __init__(self) -> None:
        self.count, self.total, self.largest = 0, 0, 0
        self.buckets: dict[int, int] = {}

    def add(self, value: int, unit: int, sign: int) -> None:
        self.count += sign
        self.total += sign * value
        if sign > 0 and value > self.largest:
            self.largest = value
        bucket = bucket_of(value / unit)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + sign

    def add_bucket(self, bucket: int, count: int, total: int, largest: int) -> None:
        self.count += count
        self.total += total
        self.largest = max(self.largest, largest)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + count

    def agrees_with(self, other: Sum) -> bool:
        return (self.count, self.total, self.largest, self.buckets) == (
            other.count,
            other.total,
            other.largest,
            other.buckets,
        )

    def absorb(self, other: Sum) -> None:
        self.count += other.count
        self.total += other.total
        self.largest = max(self.largest, other.largest)
        self.buckets = merge(self.buckets, other.buckets)


Sums = dict[tuple[str, str, str], Sum]  # by tool, status, metric


def sums_of(added: Iterable[EndedJob], removed: Iterable[EndedJob] = ()) -> Sums:
    sums: Sums = {}
    for jobs, sign in ((added, 1), (removed, -1)):
        for tool, status, *values in jobs:
            for metric, value in zip(METRICS, values, strict=True):
                if value is not None:
                    key = (tool, status, metric)
                    if key not in sums:
                        sums[key] = Sum()
                    sums[key].add(value, UNITS[metric], sign)
    return sums


def largest_of(jobs: Iterable[EndedJob]) -> list[tuple[str, str, str, int]]:
    """tool, status, metric, the largest value; in order, so that two writers wait only in one direction."""
    found: dict[tuple[str, str, str], int] = {}
    for tool, status, *values in jobs:
        for metric, value in zip(METRICS, values, strict=True):
            if value is not None:
                key = (tool, status, metric)
                found[key] = max(value, found.get(key, value))
    return [(*key, value) for key, value in sorted(found.items())]


def needs_jobs(query: HistoryQuery) -> bool:
    """Whether a query needs the jobs: the stored sums know only tools and statuses."""
    by_time = query.since_us is not None or query.until_us is not None
    by_tag = query.tags or query.without_tag
    return bool(
        by_time
        or by_tag
        or query.names
        or query.user
        or query.external_id
        or query.run_uuid
        or query.cluster_job
        or query.name_contains
        or query.hosts
        or query.findings
    )


def statistics_of(sums: Sums) -> Statistics:
    from joblens.model.history import Statistics

    tools = sorted({tool for tool, _, _ in sums})
    by_tool = {tool: _group({key: entry for key, entry in sums.items() if key[0] == tool}) for tool in tools}
    return Statistics(overall=_group(sums), by_tool=by_tool)


def _group(sums: Sums) -> GroupStatistics:
    from joblens.model.history import GroupStatistics

    by_status: dict[str, int] = {}
    whole = {metric: Sum() for metric in METRICS}
    for (_, status, metric), entry in sums.items():
        whole[metric].absorb(entry)
        if metric == "duration":  # known for every ended job
            by_status[status] = by_status.get(status, 0) + entry.count
    return GroupStatistics(
        jobs=sum(by_status.values()),
        by_status=dict(sorted(by_status.items())),
        duration_s=_distribution(whole["duration"], "duration"),
        cpu_s=_distribution(whole["cpu"], "cpu"),
        memory_peak_bytes=_distribution(whole["memory"], "memory"),
    )


def _distribution(entry: Sum, metric: str) -> Distribution:
    unit = UNITS[metric]
    return distribution(entry.buckets, total=entry.total / unit, maximum=entry.largest / unit)


_NOT_OF_ONE_JOB = (
    CancelAsked,
    TicketMade,
    ProvenanceSeen,
    JobAnnotated,
    AuditNoted,
    WorkflowCreated,
    RunCreated,
    RunNoted,
)


class JobChange:
    """All changes of one batch to one job."""

    __slots__ = ("attempt", "details", "fence", "job", "outcome", "samples", "uuid")

    def __init__(self, uuid: str) -> None:
        self.uuid = uuid
        self.fence = (
            0  # fencing token of all fields below except `job`; ignored unless it is the job's current one
        )
        self.job: Job | None = None
        self.forget_attempt()

    def forget_attempt(self) -> None:
        """Discards everything except what the job is."""
        self.attempt: Attempt | None = None
        self.outcome: Outcome | None = None
        self.samples: dict[int, Sample] = {}
        self.details: Details | None = None


def may_replace(known: Status, new: Status) -> bool:
    """Whether an outcome may be overwritten: only `lost` may, by the real one."""
    return not known.is_final or (known is Status.LOST and new is not Status.LOST)


def cancel_requests(writes: Iterable[Write]) -> list[CancelAsked]:
    return [write for write in writes if isinstance(write, CancelAsked)]


def run_writes(writes: Iterable[Write]) -> list[WorkflowCreated | RunCreated | RunNoted]:
    return [write for write in writes if isinstance(write, (WorkflowCreated, RunCreated, RunNoted))]


def annotation_row(write: JobAnnotated) -> tuple[str, str, int, str, str]:
    """uuid, uuid of the job, at_us, author, text"""
    note = write.annotation
    return note.uuid, note.job_uuid, note.at_us, storable(note.author), storable(note.text)


def audit_row(write: AuditNoted) -> tuple[str, int, str, str, str, bytes]:
    """uuid, at_us, who, action, subject, details"""
    entry = write.entry
    who, action, subject = storable(entry.who), storable(entry.action), storable(entry.subject)
    return entry.uuid, entry.at_us, who, action, subject, _json.encode(entry.details)


def storable(value: str) -> str:
    """PostgreSQL's text cannot hold the character 0; the JSON beside it can."""
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}") if "\0" in value else value


def host_of(attempt: Attempt | None) -> str:
    return "" if attempt is None else storable(attempt.owner.host)


def codes_of(outcome: Outcome) -> list[str]:
    return sorted({storable(finding.code) for finding in outcome.findings})


def seen_provenance(writes: Iterable[Write]) -> dict[str, bytes]:
    """Returns provenance, packed, by digest, in a fixed order so that writers cannot deadlock."""
    found = {write.digest: write.provenance for write in writes if isinstance(write, ProvenanceSeen)}
    if not found:
        return {}
    from joblens.stores.samples.packed_details import pack_provenance

    return {digest: pack_provenance(found[digest]) for digest in sorted(found)}


def gather(writes: Iterable[Write]) -> dict[str, JobChange]:
    """Groups writes by job.

    Of writes under several fencing tokens, only those under the highest count: the others belong to earlier
    claims.
    """
    changes: dict[str, JobChange] = {}
    for write in writes:
        if isinstance(write, _NOT_OF_ONE_JOB):
            continue
        uuid = write.job.uuid if isinstance(write, JobQueued) else write.uuid
        change = changes.get(uuid)
        if change is None:
            change = changes[uuid] = JobChange(uuid)
        if isinstance(write, JobQueued):
            change.job = change.job or write.job
            continue
        if write.fence > change.fence:
            change.forget_attempt()
            change.fence = write.fence
        if write.fence == change.fence:
            _add(change, write)
    return changes


def _add(change: JobChange, write: JobStarted | SamplesTaken | DetailsTaken | JobEnded) -> None:
    if isinstance(write, JobStarted):
        if change.attempt is None or write.attempt.number >= change.attempt.number:
            change.attempt = write.attempt
    elif isinstance(write, SamplesTaken):
        for index, sample in enumerate(write.samples, write.first):
            change.samples.setdefault(index, sample)
    elif isinstance(write, DetailsTaken):
        change.details = (change.details or Details()).updated(write.details)
    elif change.outcome is None or may_replace(change.outcome.status, write.outcome.status):
        change.outcome = write.outcome


def status_of(change: JobChange) -> Status:
    """Returns the status of a job from a single change."""
    if change.outcome is not None:
        return change.outcome.status
    return Status.QUEUED if change.attempt is None else Status.RUNNING


def began_at_us(change: JobChange) -> int:
    if change.attempt is not None:
        return change.attempt.started_at_us
    if change.job is not None:
        return change.job.created_at_us
    if change.outcome is not None:
        return change.outcome.ended_at_us - round(change.outcome.duration_s * 1_000_000)
    if change.samples:
        return min(sample.at_us - sample.elapsed_us for sample in change.samples.values())
    details = change.details or Details()
    snapshots = (details.threads, details.endpoints, details.memory)
    return min((snapshot.at_us for snapshot in snapshots if snapshot is not None), default=0)


def runs_of(changes: dict[str, JobChange]) -> set[str]:
    """Returns the UUIDs of the runs that jobs of the batch belong to."""
    jobs = (change.job for change in changes.values())
    return {job.run.run_uuid for job in jobs if job is not None and job.run is not None}


def ending_of(outcome: Outcome | None) -> Ending:
    if outcome is None:
        return Ending()
    return Ending(
        ended_at_us=outcome.ended_at_us,
        duration_us=round(outcome.duration_s * 1_000_000),
        cpu_usec=outcome.usage.cpu_total_usec,
        memory_bytes=outcome.usage.memory_peak_bytes,
        exit_code=outcome.exit_code,
        reason=storable(outcome.reason),
    )


class BatchRows:
    """Rows of a batch by the query that writes them, and ended jobs for the stored sums."""

    def __init__(self, writes: Sequence[Write]) -> None:
        self.changes = gather(writes)
        self._provenance = seen_provenance(writes)
        self._cancels = [(each.uuid, each.asked_at_us, each.by) for each in cancel_requests(writes)]
        self._annotations = [annotation_row(each) for each in writes if isinstance(each, JobAnnotated)]
        self._audit = [audit_row(each) for each in writes if isinstance(each, AuditNoted)]
        self._rows: dict[str, list[tuple[object, ...]]] = {}
        self._run_ids: dict[str, int] = {}  # the store's ids of runs, by UUID
        self._over: list[tuple[str, Status]] = []  # jobs that end with this batch, and how
        self._ended: list[EndedJob] = []
        self._no_longer: list[EndedJob] = []

    def _row(self, query: str, *values: object) -> None:
        self._rows.setdefault(query, []).append(values)

    def _link(self, job: Job | None) -> tuple[int | None, int | None, int | None]:
        if job is None or job.run is None:
            return None, None, None
        return self._run_ids[job.run.run_uuid], job.run.index, job.run.attempt

    def _count(self, before: EndedJob | None, after: EndedJob | None) -> None:
        """Notes a change of what counts for one job; None: it does not count."""
        if before == after:
            return
        if before is not None:
            self._no_longer.append(before)
        if after is not None:
            self._ended.append(after)


_json = msgspec.json.Encoder()


def workflow_row(workflow: Workflow) -> tuple[str, str, str, str, bytes]:
    """Returns uuid, name, user, source, document."""
    plain = replace(workflow, number=None)
    return plain.uuid, plain.name, plain.user, plain.source, _json.encode(plain)


def moved(runs: Iterable[Run], instead: Mapping[str, str]) -> list[Run]:
    """Assigns runs to the workflow that `instead` names for theirs, by UUID."""
    return [replace(run, workflow_uuid=instead.get(run.workflow_uuid, run.workflow_uuid)) for run in runs]


def event_row(event: RunEvent) -> tuple[str, str, int, str, bytes]:
    """Returns uuid, run uuid, at_us, kind, fact."""
    kind = type(event.fact).__struct_config__.tag
    return event.uuid, event.run_uuid, event.at_us, str(kind), _json.encode(event.fact)


def run_row(run: Run) -> tuple[str | bytes, ...]:
    """Returns the row without ids from the store and without state derived from events."""
    from joblens.model.runs.run import RunStatus

    plain = replace(
        run,
        number=None,
        workflow_number=None,
        spec_text="",
        tables={},
        status=RunStatus.CREATED,
        started_at_us=None,
        ended_at_us=None,
        owner=None,
        logs_dir="",
        spawned=(),
        jobs=run.declared_jobs,
        raised=(),
    )
    packed = packed_spec(run.spec_text, run.tables)
    return run.uuid, run.workflow_uuid, _json.encode(plain), packed


def packed_spec(text: str, tables: dict[str, Any]) -> bytes:
    return ZstdCompressor().compress(msgspec.json.encode((text, tables)), ZstdCompressor.FLUSH_FRAME)


def unpacked_spec(data: bytes, run_uuid: str) -> tuple[str, dict[str, Any]]:
    try:
        return msgspec.json.decode(ZstdDecompressor().decompress(data), type=tuple[str, dict[str, Any]])
    except (ZstdError, EOFError, msgspec.DecodeError) as error:
        raise StoreCorrupt(f"the spec of run {run_uuid} cannot be read from the store ({error})") from error
