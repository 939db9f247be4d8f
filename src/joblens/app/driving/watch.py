"""Watch of a run that another process drives: shows the state in the store in a view."""

import time
from collections.abc import Callable
from typing import Protocol

from joblens.agent.runs.view import RunView
from joblens.agent.runtime.ownership import is_gone
from joblens.analysis.runs.status import driven_s
from joblens.app.runs.lookup import reused_results
from joblens.app.runs.state import schedule_of
from joblens.engine.progress.progress import TIME, ProgressTracker, last_stop, standing
from joblens.engine.schedule.capacity import RunCapacity
from joblens.engine.schedule.schedule import Schedule
from joblens.model.errors import UnknownJob
from joblens.model.jobs.job import Owner, Status
from joblens.model.runs.plan import Plan
from joblens.model.runs.run import (
    AllocationsWait,
    JobResult,
    JobsSpawned,
    JobState,
    Run,
    RunEnded,
    RunEvent,
    RunStarted,
    RunStatus,
    StopAskedFor,
)
from joblens.plan.workflows.spawning import PlanExtender
from joblens.ports.store import Store
from joblens.probes.host.machine_load import read_host
from joblens.views.runs.cluster_waits import WaitReasons

_POLL_EVERY_S = 1.0
_SHARE = 0.1  # share of its time for polling: a run of 100,000 jobs is polled less often
_NAP_S = 0.1
_RECORDS_READ = 100  # records read per poll; further ends of jobs are counted, not reported one by one


class WatchView(RunView, Protocol):
    tracker: ProgressTracker

    def leave(self) -> None:
        """Stops showing the run, which continues."""
        ...


def offer_of(store: Store, run: Run) -> RunCapacity:
    """Returns the capacity of its last start; empty before that."""
    for _, event in reversed(store.run_events(run.uuid)):
        if isinstance(event.fact, RunStarted):
            fact = event.fact
            return RunCapacity(
                cpus=fact.cpus,
                memory_bytes=fact.memory_bytes,
                gpus=fact.gpus,
                most_jobs=run.options.most_jobs,
            )
    return RunCapacity(cpus=0.0, memory_bytes=0, most_jobs=run.options.most_jobs)


class RunWatcher:
    def __init__(self, store: Store, run: Run, plan: Plan, view: WatchView) -> None:
        """`plan`: a growing one."""
        self._store = store
        self._run = run
        self._plan = plan
        self._view = view
        self._reused = reused_results(store, run)
        self._reported: dict[tuple[int, int], Status] = {}
        self._sequence = 0
        self._owner: Owner | None = run.owner
        self._status = run.status
        self._turns: list[RunEvent] = []  # its starts and ends
        self._wait_reasons = WaitReasons(run.options.engine)
        self._stops: list[RunEvent] = []  # requests to stop since it was last started
        self._reported_status: RunStatus | None = (
            None  # status when the states of its jobs were last reported
        )
        self._is_first = True
        self._extender: PlanExtender | None = None  # created for the first batch of added jobs

    def watch(
        self,
        after_poll: Callable[[], None],
        wait_s: float | None = None,
        is_enough: Callable[[float], bool] | None = None,
        every_s: float = _POLL_EVERY_S,
    ) -> RunStatus:
        """Watches until the run ends, it has no driver, the time is over, or `is_enough` returns True;
        that is called repeatedly with the time it may wait. `after_poll` is called after each poll of the
        store."""
        deadline = None if wait_s is None else time.monotonic() + wait_s
        while True:
            began_s = time.monotonic()
            self.poll()
            self._view.tracker.status = self._status
            after_poll()
            took_s = time.monotonic() - began_s
            if self._status not in (RunStatus.RUNNING, RunStatus.CREATED):
                break
            if self._is_deserted():
                self.poll()  # it may have ended in between
                if self._status is RunStatus.RUNNING:
                    self._view.note("the driver of this run is gone; joblens resume continues it")
                    self._status = self._view.tracker.status = RunStatus.STOPPED
                    self._stop_clock()
                    self.poll()
                after_poll()
                break
            if deadline is not None and time.monotonic() >= deadline:
                break
            if not self._wait(max(every_s, took_s / _SHARE), is_enough):
                self._view.leave()
                return self._status
        self._view.close(self._status)
        return self._status

    def _wait(self, seconds: float, is_enough: Callable[[float], bool] | None) -> bool:
        """Returns False to stop."""
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0:
            self._view.tick()
            if is_enough is None:
                time.sleep(min(_NAP_S, left_s))
            elif is_enough(min(_NAP_S, left_s)):
                return False
        return True

    def poll(self) -> None:
        self._read_events()
        results = [
            result
            for result in self._store.run_results(self._run.uuid)
            if result.index < len(self._plan.jobs)  # others were added since: the next poll has them
        ]
        changed = [
            result
            for result in results
            if result.index >= 0 and self._reported.get((result.index, result.attempt)) is not result.status
        ]
        if changed or self._status is not self._reported_status:
            self._reported_status = self._status
            schedule = schedule_of(self._store, self._run, self._plan, results, self._reused)
            self._report_reused()
            self._report_results(changed, results)
            self._report_states(schedule, results)
        self._is_first = False
        if self._status is RunStatus.RUNNING:
            self._view.tick()

    def _read_events(self) -> None:
        for sequence, event in self._store.run_events(self._run.uuid, self._sequence):
            self._sequence = sequence
            if isinstance(event.fact, RunStarted):
                self._status, self._owner = RunStatus.RUNNING, event.fact.owner
                self._stops = []
                self._view.tracker.ended_at_us = None
                before_s = driven_s(self._turns, self._store.run_results(self._run.uuid)) or 0.0
                self._view.tracker.began_at_us = event.at_us - round(before_s * 1e6)
                self._turns.append(event)
            elif isinstance(event.fact, RunEnded):
                self._status = event.fact.status
                self._view.tracker.ended_at_us = event.at_us
                self._turns.append(event)
            elif isinstance(event.fact, StopAskedFor):
                self._take_stop(event)
            elif isinstance(event.fact, JobsSpawned):
                self._take_batch(event.fact)
            elif isinstance(event.fact, AllocationsWait) and self._status is RunStatus.RUNNING:
                for line in self._wait_reasons.lines(event.fact.whys):
                    self._view.note(line)

    def _take_batch(self, batch: JobsSpawned) -> None:
        if batch.first < len(self._plan.jobs):
            return
        if self._extender is None:
            self._extender = PlanExtender(self._plan)
        jobs = self._extender.add(batch)
        if jobs:
            self._view.jobs_added(jobs)
            self._reported_status = None  # states of the new jobs have to be reported

    def _stop_clock(self) -> None:
        """For a run whose driver was killed: stops at the last known time of its jobs."""
        tracker = self._view.tracker
        took_s = driven_s(self._turns, self._store.run_results(self._run.uuid)) or 0.0
        tracker.ended_at_us = tracker.began_at_us + round(took_s * 1e6)

    def _take_stop(self, event: RunEvent) -> None:
        """The driver records another process's request again."""
        before = last_stop(self._stops)
        self._stops.append(event)
        now = last_stop(self._stops)
        if now is not None and now is not before and not self._is_first:
            who = "time limit reached" if now.by == TIME else "cancelled"
            self._view.note(f"{who} ({now.how})")

    def _report_reused(self) -> None:
        if self._is_first and self._reused is not None:
            for result in self._reused.results:
                self._count(result)

    def _report_results(self, changed: list[JobResult], results: list[JobResult]) -> None:
        """Ends before the first poll are history: they are counted; failures that are still valid are
        reported."""
        last = {result.index: result.attempt for result in results}
        reported = 0
        for result in changed:
            self._reported[result.index, result.attempt] = result.status
            if result.status is Status.RUNNING:
                attempt = result.attempt + result.tries - 1
                self._view.attempt_began(result.index, attempt, result.job_uuid, result.began_at_us)
            elif result.status.is_final:
                is_new = not self._is_first or (
                    result.status is not Status.SUCCESS and last[result.index] == result.attempt
                )
                if is_new and reported < _RECORDS_READ:
                    reported += 1
                    self._report_end(result)
                else:
                    self._count(result)

    def _report_end(self, result: JobResult) -> None:
        try:
            record = self._store.find(result.job_uuid)
        except UnknownJob:
            return
        self._view.attempt_ended(result.index, result.attempt, record)

    def _count(self, result: JobResult) -> None:
        if result.status is Status.SUCCESS and result.duration_s is not None:
            self._view.tracker.attempt_succeeded(result.index, result.duration_s)

    def _report_states(self, schedule: Schedule, results: list[JobResult]) -> None:
        tracker = self._view.tracker
        running = {result.index for result in results if result.status is Status.RUNNING}
        last = {result.index: result for result in results}
        stop = last_stop(self._stops)
        for index in range(len(self._plan.jobs)):
            state, why = standing(schedule, index, self._status, stop, last.get(index))
            if index in running:
                state = JobState.RUNNING
            if state is not tracker.state_of(index):
                self._view.state_changed(index, state, why)

    def _is_deserted(self) -> bool:
        return (
            self._status is RunStatus.RUNNING
            and self._owner is not None
            and is_gone(self._owner, read_host())
        )
