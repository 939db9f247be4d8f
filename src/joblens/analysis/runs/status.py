"""Status of workflows and runs in a few numbers: jobs by state, time driven, how a run ended."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from joblens.model.jobs.job import Status
from joblens.model.runs.run import (
    JobResult,
    JobState,
    Run,
    RunEnded,
    RunEvent,
    RunStarted,
    RunStatus,
    Workflow,
)

INTERRUPTED = "interrupted"  # it started, never ended, and its driver has exited


class RunRow(Struct, frozen=True, kw_only=True):
    run: Run
    status: str  # as RunStatus, or INTERRUPTED
    done: int
    failed: int
    took_s: float | None = None  # time it was driven, without pauses between a stop and a resume

    @property
    def left(self) -> int:
        """Counts jobs without an end; jobs excluded by --only, --skip or --until do not count."""
        selected_jobs = self.run.jobs if self.run.selected is None else self.run.selected
        return max(0, selected_jobs - self.done - self.failed)


class WorkflowRow(Struct, frozen=True, kw_only=True):
    workflow: Workflow
    runs: int
    last: RunRow | None


class TaskGroupRow(Struct, frozen=True, kw_only=True):
    """Tasks of a queue that were submitted together."""

    workflow_id: str
    name: str  # '': it has none
    began_at_us: int
    by_status: dict[Status, int]

    @property
    def tasks(self) -> int:
        return sum(self.by_status.values())

    @property
    def done(self) -> int:
        return self.by_status.get(Status.SUCCESS, 0)

    @property
    def failed(self) -> int:
        return self.tasks - self.done - self.left

    @property
    def left(self) -> int:
        """Counts cancelled jobs too, as in a run."""
        return sum(self.by_status.get(each, 0) for each in (Status.QUEUED, Status.RUNNING, Status.CANCELLED))

    @property
    def status(self) -> RunStatus:
        if any(not status.is_final for status in self.by_status):
            return RunStatus.CREATED if set(self.by_status) == {Status.QUEUED} else RunStatus.RUNNING
        if self.failed:
            return RunStatus.FAILED
        return RunStatus.STOPPED if self.left else RunStatus.COMPLETED


_STATES = {
    Status.SUCCESS: JobState.COMPLETED,
    Status.TIMEOUT: JobState.TERMINATED,
    Status.CANCELLED: JobState.CANCELED,
    Status.QUEUED: JobState.PENDING,
    Status.RUNNING: JobState.RUNNING,
}


def state_of_attempt(status: Status) -> JobState:
    """Returns the state of a job in a run as its last attempt alone shows it."""
    return _STATES.get(status, JobState.FAILED)


def run_label(run: Run) -> str:
    """Returns '3.1', as people type it; its UUID if the run has no number."""
    if run.workflow_number is None or run.number is None:
        return run.uuid
    return f"{run.workflow_number}.{run.number}"


class FailedJob(Struct, frozen=True):
    name: str
    state: JobState
    why: str
    logs_dir: str = ""
    number: int | None = None  # of its last attempt's record


class FailedAction(Struct, frozen=True):
    """One failed command of an action; `name` is that of its record."""

    name: str  # action-1.2: the second command of the first action
    command: str
    why: str
    number: int | None = None
    logs_dir: str = ""


class RunEnding(Struct, frozen=True, kw_only=True):
    """End of a run. `failures`: the first ones; `more_failures`: the number of others."""

    label: str  # 3.1
    name: str
    status: RunStatus
    wall_s: float
    counts: Mapping[JobState, int]
    failures: tuple[FailedJob, ...] = ()
    more_failures: int = 0
    actions: tuple[FailedAction, ...] = ()  # failed jobs
    datasets: tuple[tuple[str, str], ...] = ()  # jobs that could not be finalized, with errors
    file: str = ""  # it came from, where there is one
    has_too_small: bool = False  # jobs that ran out of memory or time: as they are they would fail again


def driven_s(
    events: Sequence[RunEvent], results: Sequence[JobResult], until_us: int | None = None
) -> float | None:
    """Sums the time between each start and end of a driver. None: the run was never started. If a driver was
    killed, its time lasted until the last known event of its jobs. `until_us`: now, for a run that is being
    driven."""
    turns = sorted(
        (event for event in events if isinstance(event.fact, RunStarted | RunEnded)),
        key=lambda event: event.at_us,
    )
    total_us, began_us = 0, None
    for event in turns:
        if isinstance(event.fact, RunEnded):
            total_us += 0 if began_us is None else event.at_us - began_us
            began_us = None
            continue
        if began_us is not None:
            total_us += _last_before(results, began_us, event.at_us) - began_us
        began_us = event.at_us
    if not turns:
        return None
    if began_us is not None:
        ended_us = _last_before(results, began_us, None) if until_us is None else until_us
        total_us += max(0, ended_us - began_us)
    return total_us / 1_000_000


def _instants(results: Sequence[JobResult]) -> list[int]:
    began = [result.began_at_us for result in results if result.began_at_us and not result.is_deleted]
    ended = [
        result.began_at_us + round(result.duration_s * 1_000_000)
        for result in results
        if result.began_at_us and result.duration_s is not None
    ]
    return began + ended


def _last_before(results: Sequence[JobResult], from_us: int, until_us: int | None) -> int:
    known_us = _instants(results)
    return max(
        (at for at in known_us if at >= from_us and (until_us is None or at <= until_us)), default=from_us
    )
