"""Charts of one job, curves of its earlier runs, and its right-size advice."""

import time
from collections.abc import Iterator

from msgspec import Struct

from joblens.analysis.charts.job_charts import (
    CHART_COLUMNS,
    SHARED_COLUMNS,
    Chart,
    GpuTime,
    plot_job,
    plot_shared,
)
from joblens.analysis.charts.markers import Marker, markers_of
from joblens.app.server.access import Principal
from joblens.app.server.jobs import get_job
from joblens.model.errors import UnknownJob
from joblens.model.history import HistoryQuery, SortKey
from joblens.model.jobs.job import Record, Requirements, Status
from joblens.model.values.units import format_duration
from joblens.ports.store import QueueStore

_FAR_US = 1 << 62
_MARGIN_US = 60_000_000  # samples have the wall clock, which may have been set while the job ran
_PART = 5_000  # samples with tables that are in memory at once
_MOST_READ = 200  # records of the same name
_ADVICE_FROM = 1_000


class JobCharts(Struct, frozen=True, kw_only=True):
    """`at_us`: points of all curves. `now_us`: the server's clock, for jobs that are running."""

    job_uuid: str
    number: int | None
    status: Status
    started_at_us: int | None
    ended_at_us: int | None
    now_us: int
    asked: Requirements
    samples: int
    at_us: list[int]
    charts: tuple[Chart, ...]
    markers: tuple[Marker, ...]


class EarlierRun(Struct, frozen=True, kw_only=True):
    """`offset_us`: since its start."""

    job_uuid: str
    number: int | None
    status: Status
    started_at_us: int
    duration_s: float | None
    offset_us: list[int]
    curves: dict[str, list[float | None]]


class EarlierRuns(Struct, frozen=True, kw_only=True):
    items: tuple[EarlierRun, ...]


class ResourceAdvice(Struct, frozen=True, kw_only=True):
    resource: str  # memory, cpus, runtime
    current: str
    recommended: str
    is_change: bool
    reason: str


class OneJobAdvice(Struct, frozen=True, kw_only=True):
    """`line`: to paste; '' where nothing should change or nothing is known."""

    name: str
    jobs: int  # that it is based on
    confidence: str
    advice: tuple[ResourceAdvice, ...]
    line: str
    line_for: str  # command: options of joblens run; workflow: keys of a workflow file


def get_charts(
    store: QueueStore, caller: Principal, ident: str, begin_us: int | None, end_us: int | None, points: int
) -> JobCharts:
    """All curves of a job in one answer. With `begin_us`, only points from there: for zooming, and for
    updates of a running job."""
    record = get_job(store, caller, ident)
    uuid, attempt, outcome = record.job.uuid, record.attempt, record.outcome
    details = store.details(uuid)
    first_us = max(0, (begin_us or 0) - _MARGIN_US)
    last_us = _FAR_US if end_us is None else end_us + _MARGIN_US
    series = store.series(uuid, CHART_COLUMNS, first_us, last_us)
    gpus = list(_gpu_readings(store, uuid, first_us, last_us)) if details.gpus else []
    plotted = plot_job(record, details, series, gpus, points, begin_us, end_us)
    began_us = None if attempt is None else attempt.started_at_us
    return JobCharts(
        job_uuid=uuid,
        number=record.number,
        status=record.status,
        started_at_us=began_us,
        ended_at_us=None
        if outcome is None or began_us is None
        else began_us + round(outcome.duration_s * 1_000_000),
        now_us=time.time_ns() // 1000,
        asked=record.job.requirements,
        samples=plotted.samples,
        at_us=plotted.at_us,
        charts=plotted.charts,
        markers=markers_of(record, series, store.annotations(uuid)) if begin_us is None else (),
    )


def _gpu_readings(store: QueueStore, uuid: str, begin_us: int, end_us: int) -> Iterator[GpuTime]:
    after = -1
    while found := store.samples(uuid, after, _PART):
        after = found[-1][0]
        for _, sample in found:
            if sample.gpus is not None and begin_us <= sample.at_us < end_us:
                yield sample.elapsed_us, sample.gpus


def get_earlier(store: QueueStore, caller: Principal, ident: str, limit: int, points: int) -> EarlierRuns:
    """Returns earlier jobs of the same name that have samples, newest first."""
    record = get_job(store, caller, ident)
    items: list[EarlierRun] = []
    for earlier in _same_name(store, caller, record):
        if len(items) == limit:
            break
        run = earlier_run(store, earlier, points)
        if run is not None:
            items.append(run)
    return EarlierRuns(items=tuple(items))


def _same_name(store: QueueStore, caller: Principal, record: Record) -> Iterator[Record]:
    """Earlier jobs of the same name; of a job without one, those that it repeats."""
    job = record.job
    if not job.name:
        seen = {job.uuid}
        while record.job.rerun_of and record.job.rerun_of not in seen:
            seen.add(record.job.rerun_of)
            try:
                record = get_job(store, caller, record.job.rerun_of)
            except UnknownJob:
                return  # it was deleted, or is of another user
            yield record
        return
    query = HistoryQuery(
        names=(job.name,), until_us=record.began_at_us, sort=SortKey.STARTED, limit=_MOST_READ
    )
    for earlier in store.records(caller.visible(query)):
        if earlier.job.name == job.name and earlier.job.uuid != job.uuid:  # a name may look like a pattern
            yield earlier


def earlier_run(store: QueueStore, record: Record, points: int) -> EarlierRun | None:
    """None: it has no samples."""
    offset_us, curves = plot_shared(store.series(record.job.uuid, SHARED_COLUMNS, 0, _FAR_US), points)
    if not curves:
        return None
    return EarlierRun(
        job_uuid=record.job.uuid,
        number=record.number,
        status=record.status,
        started_at_us=record.began_at_us,
        duration_s=None if record.outcome is None else record.outcome.duration_s,
        offset_us=offset_us,
        curves=curves,
    )


def get_job_advice(store: QueueStore, caller: Principal, ident: str) -> OneJobAdvice:
    """Returns requests that this job and earlier ones of its name suggest."""
    from joblens.analysis.sizing.observations import observation_of
    from joblens.analysis.sizing.rightsizing import Group, advise
    from joblens.model.jobs.job import is_of_workflow

    record = get_job(store, caller, ident)
    records = [record]
    if record.job.name:
        query = HistoryQuery(names=(record.job.name,), include_unfinished=False, limit=_ADVICE_FROM)
        found = [each for each in store.records(caller.visible(query)) if each.job.name == record.job.name]
        records = found[::-1] or records
    observed = [observation_of(each, number) for number, each in enumerate(records, 1)]
    known = tuple(each for each in observed if each is not None)
    name = record.job.name or record.job.external_id or f"job {record.number}"
    group = Group(name=name, current=record.job.requirements, observations=known)
    advised = next(iter(advise([group])), None) if known else None
    parts = () if advised is None else advised.advice
    is_file = is_of_workflow(record.job)
    changes = [part for part in parts if part.is_change]
    line = (
        "\n".join(f"{part.resource}: {part.recommended_text}" for part in changes)
        if is_file
        else " ".join(_option(part.resource, part.recommended, part.recommended_text) for part in changes)
    )
    return OneJobAdvice(
        name=name,
        jobs=len(known),
        confidence="none" if advised is None else advised.confidence,
        advice=tuple(
            ResourceAdvice(
                resource=part.resource,
                current=_shown(part.resource, part.current, part.current_text, is_file=is_file),
                recommended=_shown(part.resource, part.recommended, part.recommended_text, is_file=is_file),
                is_change=part.is_change,
                reason=part.reason,
            )
            for part in parts
        ),
        line=line,
        line_for="workflow" if is_file else "command",
    )


def _shown(resource: str, amount: float | None, text: str, *, is_file: bool) -> str:
    """A workflow file has durations of ISO 8601; an option and a reader do not."""
    return format_duration(amount) if resource == "runtime" and amount is not None and not is_file else text


def _option(resource: str, amount: float, text: str) -> str:
    if resource == "runtime":
        return f"--timeout {amount:g}s"
    return f"--{resource} {text}"
