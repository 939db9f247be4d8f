"""Comparison of 2 to 50 jobs or runs in one answer."""

from collections.abc import Sequence

from msgspec import Struct, to_builtins

from joblens.analysis.comparing.job_differences import JobView
from joblens.analysis.comparing.many import (
    Axis,
    FactRow,
    Facts,
    NumberRow,
    axes_of,
    job_facts,
    job_numbers,
    number_row,
)
from joblens.analysis.runs.status import driven_s, run_label
from joblens.app.jobs.queries import provenance_of
from joblens.app.server.access import Principal
from joblens.app.server.charts import earlier_run
from joblens.app.server.jobs import get_job
from joblens.app.server.runs import find_run
from joblens.model.errors import InputError
from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Record, Status
from joblens.model.runs.run import JobResult, Run, RunStatus
from joblens.ports.store import QueueStore

MOST = 50


class Subject(Struct, frozen=True, kw_only=True):
    """`ident`: for its page."""

    kind: str  # job, run
    ident: str
    label: str
    name: str
    status: str
    started_at_us: int | None


class ComparedCurves(Struct, frozen=True, kw_only=True):
    """`offset_us`: since the start of the subject."""

    offset_us: list[int]
    curves: dict[str, list[float | None]]


class Comparison(Struct, frozen=True, kw_only=True):
    """Every list has one entry per subject, in the same order; the first subject is the baseline."""

    subjects: tuple[Subject, ...]
    numbers: tuple[NumberRow, ...]
    facts: tuple[FactRow, ...]
    same: tuple[str, ...]
    unknown: tuple[str, ...]
    axes: tuple[Axis, ...]
    curves: tuple[ComparedCurves, ...]


def compare(
    store: QueueStore, caller: Principal, jobs: Sequence[str], runs: Sequence[str], points: int
) -> Comparison:
    """Raises InputError for jobs and runs together, or too few or too many of them."""
    if bool(jobs) == bool(runs):
        raise InputError("compare jobs or runs", hint="job=12&job=15, or run=3.1&run=3.2")
    idents = tuple(dict.fromkeys(jobs or runs))
    if not 2 <= len(idents) <= MOST:
        raise InputError(f"compare needs 2 to {MOST} different ones, not {len(idents)}")
    if jobs:
        return _compare_jobs(store, caller, [get_job(store, caller, ident) for ident in idents], points)
    return _compare_runs(store, [find_run(store, caller, ident) for ident in idents], points)


def _compare_jobs(store: QueueStore, caller: Principal, records: list[Record], points: int) -> Comparison:
    from joblens.app.reports.diffs import noise_of_jobs

    views = [_view(store, record) for record in records]
    noises = noise_of_jobs(store, *records, user=caller.visible(HistoryQuery()).user)
    numbers = job_numbers(views, noises)
    facts = job_facts(views)
    curves = []
    for record in records:
        drawn = earlier_run(store, record, points)
        curves.append(
            ComparedCurves(offset_us=[], curves={})
            if drawn is None
            else ComparedCurves(offset_us=drawn.offset_us, curves=drawn.curves)
        )
    return Comparison(
        subjects=tuple(map(_job_subject, records)),
        numbers=numbers,
        facts=facts.rows,
        same=facts.same,
        unknown=facts.unknown,
        axes=axes_of([record.job.params for record in records], numbers),
        curves=tuple(curves),
    )


def _view(store: QueueStore, record: Record) -> JobView:
    provenance = provenance_of(store, record)
    return JobView(record=record, provenance=provenance, details=store.details(record.job.uuid))


def _job_subject(record: Record) -> Subject:
    name = record.job.name or record.job.external_id or " ".join(record.job.argv)[:80]
    return Subject(
        kind="job",
        ident=record.job.uuid,
        label=str(record.number),
        name=name,
        status=record.status.value,
        started_at_us=None if record.attempt is None else record.attempt.started_at_us,
    )


def _compare_runs(store: QueueStore, runs: list[Run], points: int) -> Comparison:
    results = [store.run_results(run.uuid) for run in runs]
    walls = [
        None
        if run.status is RunStatus.RUNNING
        else driven_s([event for _, event in store.run_events(run.uuid)], found)
        for run, found in zip(runs, results, strict=True)
    ]
    last = [_last_attempts(found) for found in results]
    numbers = tuple(
        row
        for row in (
            number_row("wall_s", "wall time", "s", walls),
            number_row("cpu_s", "CPU time of all jobs", "s", [_cpu_s(found) for found in results]),
            number_row("job_s", "time of all jobs", "s", [_job_s(found) for found in results]),
            number_row("longest_s", "longest job", "s", [_longest_s(found) for found in last]),
            number_row("memory_bytes", "largest peak memory", "bytes", [_memory(found) for found in last]),
            number_row("jobs", "jobs started", "count", [len(found) for found in last]),
            number_row("succeeded", "jobs that succeeded", "count", [_succeeded(found) for found in last]),
            number_row("failed", "jobs that failed", "count", [_failed(found) for found in last]),
            number_row("attempts", "attempts", "count", [len(found) for found in results]),
        )
        if any(value is not None for value in row.values)
    )
    facts = _run_facts([store.find_run(run.uuid) for run in runs])
    options = [to_builtins(run.options) for run in runs]
    return Comparison(
        subjects=tuple(map(_run_subject, runs)),
        numbers=numbers,
        facts=facts.rows,
        same=facts.same,
        unknown=facts.unknown,
        axes=axes_of(options, numbers),
        curves=tuple(_jobs_at_once(found, points) for found in results),
    )


def _run_subject(run: Run) -> Subject:
    return Subject(
        kind="run",
        ident=run.uuid,
        label=run_label(run),
        name=run_label(run),
        status=run.status.value,
        started_at_us=run.created_at_us,
    )


def _run_facts(runs: Sequence[Run]) -> Facts:
    import hashlib

    options = [
        {name: str(value) for name, value in to_builtins(run.options).items() if value is not None}
        for run in runs
    ]
    files = [hashlib.sha256(run.spec_text.encode()).hexdigest()[:12] for run in runs]
    hosts = [run.host or None for run in runs]
    rows = [
        FactRow(group="options", name=name, values=tuple(each.get(name) for each in options))
        for name in dict.fromkeys(name for each in options for name in each)
        if len({each.get(name) for each in options}) > 1
    ]
    same = [] if rows else ["options"]
    for group, values in (("workflow file", files), ("machine", hosts)):
        if len(set(values)) > 1:
            name = "content" if group == "workflow file" else "host"
            rows.append(FactRow(group=group, name=name, values=tuple(values)))
        else:
            same.append(group)
    return Facts(rows=tuple(rows), same=tuple(same), unknown=())


def _last_attempts(results: Sequence[JobResult]) -> list[JobResult]:
    return list({result.index: result for result in results if result.index >= 0}.values())


def _cpu_s(results: Sequence[JobResult]) -> float | None:
    known = [result.cpu_usec for result in results if result.cpu_usec is not None]
    return sum(known) / 1e6 if known else None


def _job_s(results: Sequence[JobResult]) -> float | None:
    known = [result.duration_s for result in results if result.duration_s is not None]
    return sum(known) if known else None


def _longest_s(results: Sequence[JobResult]) -> float | None:
    return max((result.duration_s for result in results if result.duration_s is not None), default=None)


def _memory(results: Sequence[JobResult]) -> int | None:
    return max((result.memory_bytes for result in results if result.memory_bytes is not None), default=None)


def _succeeded(results: Sequence[JobResult]) -> int:
    return sum(result.status is Status.SUCCESS for result in results)


def _failed(results: Sequence[JobResult]) -> int:
    return sum(result.status.is_failure for result in results)


def _jobs_at_once(results: Sequence[JobResult], points: int) -> ComparedCurves:
    """How many jobs ran at each time since the first began: the largest number in each part."""
    spans = [
        (result.began_at_us, result.began_at_us + round(result.duration_s * 1e6))
        for result in results
        if result.began_at_us and result.duration_s is not None
    ]
    if not spans:
        return ComparedCurves(offset_us=[], curves={})
    begin = min(start for start, _ in spans)
    width = max(1, (max(end for _, end in spans) - begin) // max(1, points - 1))
    changes = sorted([(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans])
    offsets: list[int] = []
    counts: list[float | None] = []
    running = 0
    for at_us, change in changes:
        running += change
        slot = (at_us - begin) // width * width
        if offsets and offsets[-1] == slot:
            counts[-1] = max(counts[-1] or 0, running) if at_us < changes[-1][0] else running
        else:
            offsets.append(slot)
            counts.append(running)
    return ComparedCurves(offset_us=offsets, curves={"jobs": counts})
