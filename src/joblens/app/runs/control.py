"""Control of runs from outside their driver: cancel, wait, and refusal of conflicting commands."""

import os
import signal
import time
from collections.abc import Callable
from typing import Protocol

from joblens.agent.runtime.ownership import RunLock
from joblens.analysis.runs.status import run_label
from joblens.app.jobs.submission import request_cancel
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
    """A run of one command is known by its job: it cannot be resumed or run in part."""
    if run.is_command:
        results = store.run_results(run.uuid)
        job = results[-1].number if results else run.uuid
        raise InputError(
            f"run {run_label(run)} is one command, job {job}",
            hint=f"use joblens wait {job} or joblens rerun {job}",
        )


def refuse_driven(run: Run, settings: Settings) -> None:
    """Raises RunIsDriven if a process of this machine drives it. The driver of an ended run gets some time to
    close."""
    if run.status not in _UNFINISHED:
        wait_for_driver_exit(run, LocalDrivers(settings), _HAND_OVER_S)
    lock = RunLock(spool_dir(store_name(settings)), run.uuid)
    if lock.holder() is not None:
        raise driven_by_another(run, lock)


def refuse_other_engine(run: Run, options: RunOptions, store: Store) -> None:
    """Tickets of one engine are not taken by another."""
    if run.options.engine in (options.engine, "local"):
        return
    queued = [one for one in store.running(run=run.uuid) if one.job.queue]
    if queued:
        was = run.options.engine
        raise InputError(
            f"{len(queued)} jobs of run {run_label(run)} are still on {was}, first {queued[0].job.name}",
            hint=f"continue with --engine {was}, or cancel them first: joblens cancel {run_label(run)}",
        )


def refuse_unfinished_base(run: Run, store: Store, settings: Settings) -> None:
    """Unfinished jobs of a run would run twice at once."""
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
_HAND_OVER_S = 2.0  # between two polls of a run without a driver: one may be about to start
_UNFINISHED = (RunStatus.CREATED, RunStatus.RUNNING)


class Drivers(Protocol):
    """Drivers of runs on one machine: this one, or that of a server."""

    def is_driven(self, run: Run) -> bool: ...

    def host(self) -> str:
        """Returns the name of the machine."""
        ...


class LocalDrivers:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def is_driven(self, run: Run) -> bool:
        try:
            return RunLock(spool_dir(store_name(self._settings)), run.uuid).holder() is not None
        except OSError:
            return False

    def host(self) -> str:
        return os.uname().nodename


def request_run_cancel(run: Run, store: Store, settings: Settings, by: str) -> None:
    """Its driver stops its jobs. Without a driver, its jobs are cancelled one by one."""
    if run.status not in _UNFINISHED:
        return
    running = _running(store, run)
    ended = tuple((one.job.run.index, one.job.run.attempt) for one in running if one.job.run is not None)
    note_facts(store, run, StopAskedFor("kill", by, ended))
    if wake_driver(run, settings):
        return
    for record in running:
        request_cancel(record, store, settings, by)
    note_facts(store, run, RunEnded(RunStatus.STOPPED))


def request_job_cancel(run: Run, index: int, store: Store, settings: Settings, by: str) -> None:
    """Cancels a job of a run, whether it runs, waits for its next attempt, or has not started: it does
    not start, not even when the run is resumed."""
    note_facts(store, run, JobCancelled(index, by))
    if wake_driver(run, settings):
        return
    for record in _running(store, run):
        if record.job.run is not None and record.job.run.index == index:
            request_cancel(record, store, settings, by)


def _running(store: Store, run: Run) -> list[Record]:
    return store.running(run=run.uuid)


def wake_driver(run: Run, settings: Settings) -> bool:
    """Wakes the driver to read the store. Returns whether there is one."""
    return RunLock(spool_dir(store_name(settings)), run.uuid).signal_holder(signal.SIGUSR1)


def wait_for_job_of_run(store: Store, run: Run, index: int, drivers: Drivers, timeout_s: float) -> JobState:
    """Returns its state once that is final, or at the time-out, or if the run has no driver."""
    from joblens.app.runs.state import state_of_run

    deadline_s, poll_s = time.monotonic() + timeout_s, _FIRST_POLL_S
    while True:
        alone = not drivers.is_driven(run)
        state = state_of_run(store, store.find_run(run.uuid)).jobs[index].state
        is_running = state in (JobState.PENDING, JobState.RUNNING)
        if state.is_final or time.monotonic() >= deadline_s or (alone and not is_running):
            return state
        time.sleep(poll_s)
        poll_s = min(_LONGEST_POLL_S, poll_s * 1.3)


def note_facts(store: Store, run: Run, *facts: RunFact) -> None:
    """Adds the facts to the run's events, all at once and with the time of now."""
    now_us = time.time_ns() // 1000
    store.apply([RunNoted(RunEvent(new_uuid(), run.uuid, now_us, fact)) for fact in facts])


def wait_for_run(
    store: Store, run_uuid: str, drivers: Drivers, timeout_s: float | None, recover: Callable[[], None]
) -> Run:
    """Returns the run once it has ended, or at the time-out. Raises JoblensError if its driver is gone."""
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    hand_over_s = time.monotonic() + _HAND_OVER_S
    poll_s, alone_since_s = _FIRST_POLL_S, None
    while True:
        run = store.find_run(run_uuid)
        if deadline_s is not None and time.monotonic() >= deadline_s:
            return run
        if run.status not in _UNFINISHED:
            # The driver of an ended run is closing, or was just started to continue the run.
            if time.monotonic() >= hand_over_s or not drivers.is_driven(run):
                return run
        elif drivers.is_driven(run) or (run.owner is not None and run.owner.host != drivers.host()):
            alone_since_s = None
        elif alone_since_s is None:
            alone_since_s = time.monotonic()
        elif time.monotonic() - alone_since_s > _HAND_OVER_S:
            recover()
            label = run_label(run)
            raise JoblensError(
                f"run {label} is not finished, and no driver is running",
                hint=f"joblens resume {label} continues it",
            )
        time.sleep(poll_s)
        poll_s = min(_LONGEST_POLL_S, poll_s * 1.3)


def wait_for_driver_exit(run: Run, drivers: Drivers, timeout_s: float) -> None:
    """Waits until the driver of an ended run has removed its cluster jobs too."""
    deadline_s, poll_s = time.monotonic() + timeout_s, _FIRST_POLL_S
    while drivers.is_driven(run) and time.monotonic() < deadline_s:
        time.sleep(poll_s)
        poll_s = min(_LONGEST_POLL_S, poll_s * 1.3)
