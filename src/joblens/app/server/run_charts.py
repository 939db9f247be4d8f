"""Graph and timeline of a run, for pages."""

from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from joblens.analysis.charts.gantt import (
    AttemptFacts,
    Gantt,
    JobUse,
    PlotJob,
    gantt_of,
    use_of_job,
    use_of_run,
)
from joblens.analysis.charts.series import series_of_samples
from joblens.analysis.charts.timeline import Timeline, timeline_of
from joblens.app.reports.plot_sources import ends_of_pauses
from joblens.app.runs.lookup import records_of_run, reused_results
from joblens.app.server.access import Principal
from joblens.app.server.run_views import RunView, RunViews, TimelineAt
from joblens.app.server.runs import find_run
from joblens.model.jobs.job import Record, Requirements, Status
from joblens.model.runs.plan import Plan
from joblens.model.runs.run import JobState, Run
from joblens.ports.store import QueueStore
from joblens.views.graph.run_graph import MOST_OPENED, MOST_SINGLE, JobGroups, RunGraph, graph_of

_MOST_SAMPLED = 200  # attempts whose samples are read for the machine's use
_FEWEST_SAMPLES = 5
_URGENT = (
    JobState.FAILED,
    JobState.PENDING_FAILED,
    JobState.TERMINATED,
    JobState.RUNNING,
    JobState.PENDING,
    JobState.READY,
)


class GraphQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    open: tuple[Annotated[int, Meta(ge=0, le=1_000_000)], ...] = ()  # groups to show job by job
    grouped: bool = False  # also a small graph


class GraphAnswer(Struct, frozen=True, kw_only=True):
    is_grouped: bool
    can_group: bool  # there are fewer groups than jobs
    opened: tuple[int, ...]
    graph: RunGraph


class TimelineQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    group: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None  # whose attempts get bars


class TimelineAnswer(Struct, frozen=True, kw_only=True):
    at_us: int
    timeline: Timeline | None  # None: nothing has started


def get_graph(
    views: RunViews, store: QueueStore, caller: Principal, ident: str, query: GraphQuery
) -> GraphAnswer:
    """Jobs one by one in a small run, otherwise groups; a large group opens with the jobs that matter."""
    run = find_run(store, caller, ident)
    view = views.of(run)
    with view.lock:
        plan, groups = view.read_plan(run)
        is_grouped = query.grouped or len(plan.jobs) > MOST_SINGLE
        open_groups = {each for each in query.open if each < len(groups.members)}
        if open_groups:
            view.refresh(store, run)
        opened = {
            group: _most_important(view, members) if is_grouped else members
            for group, members in enumerate(groups.members)
            if not is_grouped or group in open_groups
        }
    return GraphAnswer(
        is_grouped=is_grouped,
        can_group=len(groups.members) < len(plan.jobs),
        opened=tuple(sorted(open_groups)),
        graph=graph_of(plan, groups, opened),
    )


def _most_important(view: RunView, members: tuple[int, ...]) -> tuple[int, ...]:
    if not view.rows:
        return members[:MOST_OPENED]
    urgency = {int(state): rank for rank, state in enumerate(_URGENT)}
    order = sorted(members, key=lambda index: (urgency.get(view.rows[index].state, len(_URGENT)), index))
    return tuple(order[:MOST_OPENED])


def get_timeline(
    views: RunViews, store: QueueStore, caller: Principal, ident: str, query: TimelineQuery
) -> TimelineAnswer:
    run = find_run(store, caller, ident)
    view = views.of(run)
    with view.lock:
        plan, groups = view.read_plan(run)
        at_us, timeline = view.timeline(
            run, query.group, lambda: _timeline_now(store, run, plan, groups, query.group)
        )
    return TimelineAnswer(at_us=at_us, timeline=timeline)


def _timeline_now(
    store: QueueStore, run: Run, plan: Plan, groups: JobGroups, opened: int | None
) -> TimelineAt:
    """Of the run's own attempts: those whose results it keeps ran in earlier runs, perhaps days before."""
    now_us = store.now_us()
    results = store.run_results(run.uuid)
    events = [event for _, event in store.run_events(run.uuid)]
    records = _records(store, run, len(results))
    requirements: dict[str, Requirements] = {each.job.uuid: each.job.requirements for each in records}
    facts = AttemptFacts(asked=requirements, not_before_us=ends_of_pauses(plan, results, events))
    gantt = gantt_of(_plot_jobs(plan), results, events, now_us, facts)
    if gantt is None:
        return now_us, None
    if (reused := reused_results(store, run)) is not None:
        gantt = replace(gantt, not_started=gantt.not_started - len(reused.run_of))
    use = use_of_run(gantt, _uses(store, gantt, records), events)
    return now_us, timeline_of(gantt, use, groups.group_of, groups.names, opened)


def _plot_jobs(plan: Plan) -> list[PlotJob]:
    return [PlotJob(job.name, job.depends_on, job.requirements) for job in plan.jobs]


def _records(store: QueueStore, run: Run, attempts: int) -> list[Record]:
    """Returns all attempts of a small run; of a large one those that run, and all if their requests differ
    from the plan's."""
    if attempts <= _MOST_SAMPLED or run.raised:
        return list(records_of_run(store, run.uuid))
    return store.running(run=run.uuid)


def _uses(store: QueueStore, gantt: Gantt, records: list[Record]) -> dict[int, JobUse]:
    started = {bar.number for bar in gantt.bars}
    if len(records) > _MOST_SAMPLED:
        records = [each for each in records if each.status is Status.RUNNING][:_MOST_SAMPLED]
    uses = {}
    for record in records:
        if record.number in started and record.attempt is not None:
            samples = [sample for _, sample in store.samples(record.job.uuid)]
            use = use_of_job(series_of_samples(record, samples))
            # Few samples of an ended attempt say less than its totals.
            if use is not None and (len(samples) >= _FEWEST_SAMPLES or not record.status.is_final):
                uses[record.number] = use
    return uses
