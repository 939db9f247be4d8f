"""State of a run from its plan, results and events; its single jobs and failed actions."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from msgspec import Struct, to_builtins

from joblens.agent.runtime.ownership import is_gone
from joblens.analysis.runs.status import FailedAction, run_label
from joblens.app.runs.lookup import ReusedResults, reused_events, reused_results
from joblens.engine.progress.allocations import RunAllocations
from joblens.engine.progress.progress import failed_finalizations, last_stop, standing
from joblens.engine.schedule.capacity import Choices, RunCapacity
from joblens.engine.schedule.events import FinalizationEnded, StopMode
from joblens.engine.schedule.replay import restore, was_withdrawn
from joblens.engine.schedule.retries import CUT_OFF
from joblens.engine.schedule.schedule import Schedule
from joblens.model.errors import JoblensError, UnknownJob, UnknownRun
from joblens.model.jobs.job import Record, Status
from joblens.model.runs.plan import Plan
from joblens.model.runs.run import (
    ActionRan,
    JobResult,
    JobState,
    Run,
    RunEvent,
    RunStarted,
    RunStatus,
    StopAskedFor,
)
from joblens.plan.workflows.plan_document import describe_raised
from joblens.ports.store import Store
from joblens.probes.host.machine_load import read_host
from joblens.views.jobs.summary import ending
from joblens.views.runs.cluster_waits import describe_wait

# Nothing is started here, so the capacity does not matter as long as every job would fit.
_EVERYTHING = 2**62
_GPUS = tuple(str(device) for device in range(64))


class JobStanding(Struct, frozen=True, kw_only=True):
    """State of one job. `why`: the reason why it waits, or how it ended."""

    index: int
    name: str
    label: str = ""
    state: JobState
    why: str
    results: tuple[JobResult, ...]  # its attempts
    kept_from: str | None = None  # the earlier run whose outcome it keeps
    added_by: str | None = None  # the job that added it during the run
    is_left: bool = False  # `joblens resume` would run it


class RunState(Struct, frozen=True, kw_only=True):
    run: Run
    plan: Plan
    jobs: tuple[JobStanding, ...]
    has_failed_datasets: bool = False

    def counts(self) -> dict[JobState, int]:
        return dict(Counter(job.state for job in self.jobs))


def state_of_run(store: Store, run: Run, plan: Plan | None = None) -> RunState:
    """`run` from `find_run`, with its spec. `plan`: of this run, if it is known."""
    from joblens.app.workflows.loader import plan_of_run

    plan = plan_of_run(run) if plan is None else plan
    results = store.run_results(run.uuid)
    reused = reused_results(store, run)
    schedule = schedule_of(store, run, plan, results, reused)
    attempts: dict[int, list[JobResult]] = {}
    for result in [*(reused.results if reused else ()), *results]:
        if was_withdrawn(result):
            continue
        attempts.setdefault(result.index, []).append(result)
    own = {result.index for result in results}
    events = [event for _, event in store.run_events(run.uuid)]
    status, stop, allocations = status_now(run), last_stop(events), RunAllocations(events)
    jobs = []
    for index, job in enumerate(plan.jobs):
        tried = tuple(attempts.get(index, ()))
        state, why = standing(schedule, index, status, stop, tried[-1] if tried else None)
        if tried and tried[-1].status is Status.QUEUED and not state.is_final:
            allocation = allocations.of(tried[-1].job_uuid)
            why = describe_wait(allocation) if allocation is not None else why
        jobs.append(
            JobStanding(
                index=index,
                name=job.name,
                label=job.label,
                state=state,
                why=why,
                results=tried,
                kept_from=None if reused is None or index in own else reused.run_of.get(index),
                added_by=plan.jobs[job.spawned_by].name if job.spawned_by >= 0 else None,
                is_left=not schedule.state_of(index).is_final,
            )
        )
    has_failed = bool(schedule.failed_datasets())
    return RunState(run=run, plan=plan, jobs=tuple(jobs), has_failed_datasets=has_failed)


def status_now(run: Run) -> RunStatus:
    """A run whose driver is gone is stopped, though that was not recorded."""
    is_deserted = (
        run.status is RunStatus.RUNNING and run.owner is not None and is_gone(run.owner, read_host())
    )
    return RunStatus.STOPPED if is_deserted else run.status


def schedule_of(
    store: Store, run: Run, plan: Plan, results: list[JobResult], reused: ReusedResults | None
) -> Schedule:
    offer = RunCapacity(cpus=float(_EVERYTHING), memory_bytes=_EVERYTHING, gpus=_GPUS)
    choices = Choices(
        enabled=_enabled(run, plan),
        enforce=run.options.enforce,
        lost_is_final=run.options.engine != "local",  # as in its driver
    )
    schedule = Schedule(plan, offer, choices)
    events = [event for _, event in store.run_events(run.uuid)]
    if reused is None:
        restore(schedule, results, events)
    else:
        earlier = reused_events(store, reused)
        restore(schedule, results, events, reused.results, again=run.again, base_events=earlier)
    schedule.stopping = StopMode.DRAIN
    schedule.begin(0.0)
    for fact in failed_finalizations(events):
        schedule.handle(FinalizationEnded(fact.index, fact.error), 0.0)
    return schedule


def _enabled(run: Run, plan: Plan) -> frozenset[int] | None:
    options = run.options
    if not (options.only or options.skip or options.until):
        return None
    from joblens.plan.workflows.selection import select

    return frozenset(select(plan, options.only, options.skip, options.until).indexes)


class RunJob(Struct, frozen=True):
    run: Run
    index: int
    name: str
    state: JobState


def job_of_run(store: Store, run: Run, name: str) -> RunJob:
    """Raises UnknownJob."""
    jobs = state_of_run(store, run).jobs
    for job in jobs:
        if job.name == name:
            return _run_job(run, job)
    from joblens.plan.workflows.problems import nearest_name

    near = nearest_name(name, [job.name for job in jobs])
    label = run_label(run)
    hint = f"did you mean {near}?" if near else f"joblens results {label} lists them"
    raise UnknownJob(f"run {label} has no job '{name}'", hint=hint)


def waiting_job(store: Store, record: Record) -> RunJob | None:
    """Returns the job of a run whose last attempt this was, if it waits for its next one."""
    link = record.job.run
    if link is None or link.index < 0 or not record.status.is_final:
        return None
    try:
        run = store.find_run(link.run_uuid)
    except UnknownRun:
        return None
    if run.status is not RunStatus.RUNNING:
        return None
    job = state_of_run(store, run).jobs[link.index]
    is_last = bool(job.results) and job.results[-1].job_uuid == record.job.uuid
    return _run_job(run, job) if is_last and not job.state.is_final else None


def raised_before(store: Store, record: Record) -> str:
    """Describes requests that recovery raised before this attempt; '' if there are none."""
    link = record.job.run
    if link is None or link.index < 0:
        return ""
    try:
        run = store.find_run(link.run_uuid)
    except UnknownRun:
        return ""
    return describe_raised(run.raised, link.index, link.attempt, with_why=True)


def _run_job(run: Run, job: JobStanding) -> RunJob:
    """`is_left`: resuming a stopped run would run it, though it counts as ended now."""
    return RunJob(
        run, job.index, job.name, JobState.READY if job.is_left and job.state.is_final else job.state
    )


def failed_actions(store: Store, run_uuid: str) -> tuple[FailedAction, ...]:
    """Returns actions whose last command failed; one that was run again and succeeded is not included."""
    try:
        last = last_of_actions(event for _, event in store.run_events(run_uuid))
        return tuple(_failed(store, fact) for fact in last if fact.status is not Status.SUCCESS)
    except JoblensError:
        return ()  # the store does not answer


def last_of_actions(events: Iterable[RunEvent]) -> list[ActionRan]:
    """Returns the result of each action, in the order of the plan. One that was stopped with the run
    counts as not run."""
    last: dict[tuple[int, str], ActionRan] = {}
    is_stopped = False
    for event in events:
        fact = event.fact
        if isinstance(fact, RunStarted | StopAskedFor):
            is_stopped = isinstance(fact, StopAskedFor)
        elif isinstance(fact, ActionRan) and not (is_stopped and fact.status in CUT_OFF):
            last[fact.action, fact.worker] = fact
    return [last[key] for key in sorted(last)]


def _failed(store: Store, fact: ActionRan) -> FailedAction:
    name = f"action-{fact.action + 1}.{fact.command + 1}"
    try:
        record = store.find(fact.job_uuid)
    except UnknownJob:
        return FailedAction(name, "", fact.status.value)
    return FailedAction(
        name,
        " ".join(record.job.argv),
        (ending(record.outcome) if record.outcome is not None else "") or fact.status.value,
        record.number,
        record.attempt.logs_dir if record.attempt is not None else "",
    )


def actions_form(actions: Iterable[FailedAction]) -> list[dict[str, Any]]:
    """For --json."""
    return [to_builtins(action) for action in actions]
