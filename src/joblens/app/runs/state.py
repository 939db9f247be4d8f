"""How the jobs of a run stand: its plan, its results and its events put together, without driving it."""

from msgspec import Struct

from joblens.agent.runtime.owners import is_gone
from joblens.app.runs.lookup import KeptResults, kept_events, kept_results
from joblens.engine.progress.allocations import ClusterPlaces
from joblens.engine.progress.standing import failed_finalizations, last_stop, standing
from joblens.engine.schedule.capacity import Choices, RunCapacity
from joblens.engine.schedule.events import FinalizationEnded, StopMode
from joblens.engine.schedule.replay import restore, was_withdrawn
from joblens.engine.schedule.schedule import Schedule
from joblens.model.jobs.job import Status
from joblens.model.runs.plan import Plan
from joblens.model.runs.run import JobResult, JobState, Run, RunStatus
from joblens.ports.store import Store
from joblens.probes.host.machine_load import read_host

# Nothing is started here, so how much there is does not matter as long as every job would fit.
_EVERYTHING = 2**62
_GPUS = tuple(str(device) for device in range(64))


class JobStanding(Struct, frozen=True, kw_only=True):
    """`why`: what it waits for, or how it ended."""

    index: int
    name: str
    label: str = ""
    state: JobState
    why: str
    results: tuple[JobResult, ...]  # its attempts
    kept_from: str | None = None  # the earlier run whose outcome it keeps
    added_by: str | None = None  # the job that added it while the run went on
    is_left: bool = False  # `joblens resume` has something to do with it


class RunState(Struct, frozen=True, kw_only=True):
    run: Run
    plan: Plan
    jobs: tuple[JobStanding, ...]
    has_failed_datasets: bool = False

    def counts(self) -> dict[JobState, int]:
        found: dict[JobState, int] = {}
        for job in self.jobs:
            found[job.state] = found.get(job.state, 0) + 1
        return found


def state_of_run(store: Store, run: Run) -> RunState:
    """`run` as `find_run` gives it, with its spec."""
    from joblens.app.workflows.loading import plan_of_run

    plan = plan_of_run(run)
    results = store.run_results(run.uuid)
    kept = kept_results(store, run)
    schedule = schedule_of(store, run, plan, results, kept)
    attempts: dict[int, list[JobResult]] = {}
    for result in [*(kept.results if kept else ()), *results]:
        if was_withdrawn(result):
            continue
        attempts.setdefault(result.index, []).append(result)
    own = {result.index for result in results}
    events = [event for _, event in store.run_events(run.uuid)]
    status, stop, places = status_now(run), last_stop(events), ClusterPlaces(events)
    jobs = []
    for index, job in enumerate(plan.jobs):
        tried = tuple(attempts.get(index, ()))
        state, why = standing(schedule, index, status, stop, tried[-1] if tried else None)
        if tried and tried[-1].status is Status.QUEUED and not state.is_final:
            place = places.of(tried[-1].job_uuid)
            why = place.in_words() if place is not None else why
        jobs.append(
            JobStanding(
                index=index,
                name=job.name,
                label=job.label,
                state=state,
                why=why,
                results=tried,
                kept_from=None if kept is None or index in own else kept.run_of.get(index),
                added_by=plan.jobs[job.spawned_by].name if job.spawned_by >= 0 else None,
                is_left=not schedule.state_of(index).is_final,
            )
        )
    has_failed = bool(schedule.failed_datasets())
    return RunState(run=run, plan=plan, jobs=tuple(jobs), has_failed_datasets=has_failed)


def status_now(run: Run) -> RunStatus:
    """A run whose driver is gone is stopped, though nobody noted so."""
    is_deserted = (
        run.status is RunStatus.RUNNING and run.owner is not None and is_gone(run.owner, read_host())
    )
    return RunStatus.STOPPED if is_deserted else run.status


def schedule_of(
    store: Store, run: Run, plan: Plan, results: list[JobResult], kept: KeptResults | None
) -> Schedule:
    offer = RunCapacity(cpus=float(_EVERYTHING), memory_bytes=_EVERYTHING, gpus=_GPUS)
    choices = Choices(
        enabled=_enabled(run, plan),
        enforce=run.options.enforce,
        lost_is_final=run.options.engine != "local",  # as its driver has it
    )
    schedule = Schedule(plan, offer, choices)
    events = [event for _, event in store.run_events(run.uuid)]
    if kept is None:
        restore(schedule, results, events)
    else:
        earlier = kept_events(store, kept)
        restore(schedule, results, events, kept.results, again=run.again, base_events=earlier)
    schedule.stopping = StopMode.DRAIN
    schedule.begin(0.0)
    for fact in failed_finalizations(events):
        schedule.handle(FinalizationEnded(fact.place, fact.error), 0.0)
    return schedule


def _enabled(run: Run, plan: Plan) -> frozenset[int] | None:
    options = run.options
    if not (options.only or options.skip or options.until):
        return None
    from joblens.plan.workflows.selection import select

    return frozenset(select(plan, options.only, options.skip, options.until).places)
