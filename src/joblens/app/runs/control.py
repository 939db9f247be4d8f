"""Control of runs from outside their driver: cancel, wait, and refusal of conflicting commands."""

import signal
import time
from collections.abc import Callable

from joblens.agent.runtime.ownership import RunLock
from joblens.analysis.runs.status import run_label
from joblens.app.jobs.submission import ask_to_cancel
from joblens.app.wiring.drivers import spool_dir, store_name
from joblens.model.errors import InputError, JoblensError, RunIsDriven
from joblens.model.jobs.job import Record, Status
from joblens.model.runs.run import (
    JobCancelled,
    JobState,
    Run,
    RunEnded,
    RunEvent,
    RunFact,
    RunOptions,
    RunStatus,
    StopAskedFor,
)
from joblens.model.settings import Settings
from joblens.model.values.ids import new_uuid
from joblens.model.writes import RunNoted
from joblens.ports.store import Store


def refuse_command(run: Run, store: Store) -> None:
    """A run of one command is known by its job: there is nothing of it to resume or to run in part."""
    if run.is_command:
        results = store.run_results(run.uuid)
        job = results[-1].number if results else run.uuid
        raise InputError(
            f"run {run_label(run)} is one command, job {job}",
            hint=f"use joblens wait {job} or joblens rerun {job}",
        )


def refuse_driven(run: Run, settings: Settings) -> None:
    """Raises RunIsDriven when a process of this machine is at it."""
    lock = RunLock(spool_dir(store_name(settings)), run.uuid)
    if lock.holder() is not None:
        raise driven_by_another(run, lock)


def refuse_other_engine(run: Run, options: RunOptions, store: Store) -> None:
    """Tickets of one engine are not taken by another."""
    if run.options.engine in (options.engine, "local"):
        return
    left = [one for one in store.running(run=run.uuid) if one.job.queue]
    if left:
        was = run.options.engine
        raise InputError(
            f"{len(left)} jobs of run {run_label(run)} are still on {was}, first {left[0].job.name}",
            hint=f"continue with --engine {was}, or cancel them first: joblens cancel {run_label(run)}",
        )


def refuse_unfinished_base(run: Run, store: Store, settings: Settings) -> None:
    """What is still going on in a run would be started a second time, beside itself."""
    refuse_driven(run, settings)
    for record in store.running(run=run.uuid):
        if record.status is Status.RUNNING:
            label = run_label(run)
            raise RunIsDriven(
                f"job {record.job.name} of run {label} is still running",
                hint=f"joblens resume {label} waits for it and continues, joblens cancel {label} cancels it",
            )


def driven_by_another(run: Run, lock: RunLock) -> RunIsDriven:
    label = run_label(run)
    return RunIsDriven(
        f"run {label} is being run by process {lock.holder()}",
        hint=f"joblens watch {label} shows it, joblens cancel {label} cancels it",
    )


_FIRST_POLL_S, _LONGEST_POLL_S = 0.05, 0.5
_HAND_OVER_S = 2.0  # between two looks at a run that nobody drives: one may just be about to
_UNFINISHED = (RunStatus.CREATED, RunStatus.RUNNING)


def is_driven(run: Run, settings: Settings) -> bool:
    """By a process of this machine."""
    try:
        return RunLock(spool_dir(store_name(settings)), run.uuid).holder() is not None
    except OSError:
        return False


def ask_run_to_end(run: Run, store: Store, settings: Settings, by: str) -> None:
    """Whoever drives it ends its jobs. Where nobody does any more, its jobs are ended one by one."""
    if run.status not in _UNFINISHED:
        return
    running = _running(store, run)
    ended = tuple((one.job.run.index, one.job.run.attempt) for one in running if one.job.run is not None)
    store.apply([_noted(run, StopAskedFor("kill", by, ended))])
    if wake_driver(run, settings):
        return
    for record in running:
        ask_to_cancel(record, store, settings, by)
    store.apply([_noted(run, RunEnded(RunStatus.STOPPED))])


def ask_job_to_end(run: Run, index: int, store: Store, settings: Settings, by: str) -> None:
    """A job of a run, whether it runs, waits for its next attempt, or has not begun: it is not started any
    more, also when the run is gone on with."""
    store.apply([_noted(run, JobCancelled(index, by))])
    if wake_driver(run, settings):
        return
    for record in _running(store, run):
        if record.job.run is not None and record.job.run.index == index:
            ask_to_cancel(record, store, settings, by)


def _running(store: Store, run: Run) -> list[Record]:
    return store.running(run=run.uuid)


def wake_driver(run: Run, settings: Settings) -> bool:
    """Whether there is one, to look at what was noted."""
    return RunLock(spool_dir(store_name(settings)), run.uuid).signal_holder(signal.SIGUSR1)


def wait_for_job_of_run(store: Store, run: Run, index: int, settings: Settings, timeout_s: float) -> JobState:
    """Its state once that is final, or as it is when the time is up or nobody drives the run."""
    from joblens.app.runs.state import state_of_run

    deadline_s, poll_s = time.monotonic() + timeout_s, _FIRST_POLL_S
    while True:
        alone = not is_driven(run, settings)
        state = state_of_run(store, store.find_run(run.uuid)).jobs[index].state
        is_running = state in (JobState.PENDING, JobState.RUNNING)
        if state.is_final or time.monotonic() >= deadline_s or (alone and not is_running):
            return state
        time.sleep(poll_s)
        poll_s = min(_LONGEST_POLL_S, poll_s * 1.3)


def _noted(run: Run, fact: RunFact) -> RunNoted:
    return RunNoted(RunEvent(new_uuid(), run.uuid, time.time_ns() // 1000, fact))


def wait_for_run(
    store: Store, run_uuid: str, settings: Settings, timeout_s: float | None, care: Callable[[], None]
) -> Run:
    """The run once it has ended, or as it stands when the time is up. Raises JoblensError when the
    process that drove it is gone."""
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    poll_s, alone_since_s = _FIRST_POLL_S, None
    while True:
        run = store.find_run(run_uuid)
        if run.status not in _UNFINISHED or (deadline_s is not None and time.monotonic() >= deadline_s):
            return run
        if is_driven(run, settings) or (run.owner is not None and run.owner.host != _host()):
            alone_since_s = None
        elif alone_since_s is None:
            alone_since_s = time.monotonic()
        elif time.monotonic() - alone_since_s > _HAND_OVER_S:
            care()
            label = run_label(run)
            raise JoblensError(
                f"run {label} is not finished, and no driver is running",
                hint=f"joblens resume {label} continues it",
            )
        time.sleep(poll_s)
        poll_s = min(_LONGEST_POLL_S, poll_s * 1.3)


def wait_until_let_go(run: Run, settings: Settings, timeout_s: float) -> None:
    """Until who drove a run that is over has ended what it had on a cluster, too."""
    deadline_s, poll_s = time.monotonic() + timeout_s, _FIRST_POLL_S
    while is_driven(run, settings) and time.monotonic() < deadline_s:
        time.sleep(poll_s)
        poll_s = min(_LONGEST_POLL_S, poll_s * 1.3)


def _host() -> str:
    import os

    return os.uname().nodename
