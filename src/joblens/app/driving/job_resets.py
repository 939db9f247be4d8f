"""Jobs of a run that are set to run again, in the same run: `joblens resume` runs them as new attempts."""

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from joblens.agent.runs.signals import heed_as_before, heed_no_nudge
from joblens.agent.runtime.locks import RunLock
from joblens.agent.runtime.owners import is_gone
from joblens.analysis.runs.workflow_rows import run_label
from joblens.app.runs.refusals import driven_by_another, refuse_unfinished_base
from joblens.app.runs.state import JobStanding, RunState
from joblens.app.wiring.drivers import store_name
from joblens.app.wiring.paths import spool_dir
from joblens.engine.schedule.replay import notes_of
from joblens.model.errors import RunIsDriven
from joblens.model.runs.run import (
    JobsReset,
    JobState,
    RaisedRequest,
    RequirementsRaised,
    Run,
    RunEnded,
    RunEvent,
    RunFact,
    RunStatus,
)
from joblens.model.settings import Settings
from joblens.model.values.ids import new_uuid
from joblens.model.writes import RunNoted
from joblens.plan.workflows.graph import Graph
from joblens.ports.store import Store
from joblens.probes.host.machine_load import read_host


def refuse_unfinished_run(run: Run, store: Store, settings: Settings) -> None:
    """Raises RunIsDriven while a process on any machine drives the run, or one of its jobs runs."""
    refuse_unfinished_base(run, store, settings)
    if run.status is RunStatus.RUNNING and run.owner is not None and not is_gone(run.owner, read_host()):
        label = run_label(run)
        raise RunIsDriven(
            f"run {label} is being run on {run.owner.host}",
            hint=f"joblens watch {label} --recover waits for its end, joblens cancel {label} ends it",
        )


@contextmanager
def hold_run(run: Run, store: Store, settings: Settings) -> Iterator[RunLock]:
    """Holds the run's lock from a decision to its end: no other process drives or resets the run meanwhile.
    Raises RunIsDriven."""
    refuse_unfinished_run(run, store, settings)
    lock = RunLock(spool_dir(store_name(settings)), run.uuid)
    nudged = heed_no_nudge()  # the holder of the lock is sent a signal that would end it
    try:
        if not lock.take():
            raise driven_by_another(run, lock)
        try:
            yield lock
        finally:
            lock.release()
    finally:
        heed_as_before(nudged)


def reset_jobs(
    store: Store, run: Run, jobs: Sequence[tuple[int, int]], raised: Sequence[RaisedRequest], by: str
) -> None:
    """`jobs`: (index, last attempt). The run counts as stopped until it is resumed."""
    facts: list[RunFact] = [JobsReset(tuple(jobs), by)]
    if raised:
        facts.insert(0, RequirementsRaised(tuple(raised), by))
    if run.status is not RunStatus.CREATED:
        facts.append(RunEnded(RunStatus.STOPPED))
    now_us = time.time_ns() // 1000
    store.apply([RunNoted(RunEvent(new_uuid(), run.uuid, now_us, fact)) for fact in facts])


def last_attempt(job: JobStanding) -> int:
    """In this run; 0: there is none, or its outcome was kept from an earlier run."""
    return job.results[-1].attempt if job.results and job.kept_from is None else 0


def with_dependants(state: RunState, indices: Collection[int], cancelled: Collection[int] = ()) -> list[int]:
    """The jobs and everything that needs them. Jobs that this run leaves out stay so, and so do jobs that
    someone `cancelled`, unless they are named."""
    behind = Graph(state.plan).behind(sorted(indices))
    left_out = set(cancelled) - set(indices)
    return sorted(
        index
        for index in behind
        if index not in left_out and state.jobs[index].state is not JobState.DISABLED
    )


def cancelled_jobs(store: Store, run: Run) -> frozenset[int]:
    """Jobs that were asked to end, and not reset since."""
    return notes_of([event for _, event in store.run_events(run.uuid)]).unwanted
