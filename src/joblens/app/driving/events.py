"""Live events of a run for Python programs, and the view that makes them."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from joblens.agent.runs.view import NoView
from joblens.model.jobs.job import Record
from joblens.model.runs.plan import Plan, PlannedJob
from joblens.model.runs.run import JobState, RunStatus


class RunStarted(Struct, frozen=True, kw_only=True):
    """The run exists and its first jobs are about to start."""

    run_id: str  # "3.1", as commands show it
    run_uuid: str
    workflow: str  # its name
    jobs: int


class JobStarted(Struct, frozen=True, kw_only=True):
    """An attempt of a job has started."""

    job: str
    attempt: int
    job_uuid: str


class JobEnded(Struct, frozen=True, kw_only=True):
    """An attempt of a job has ended, and its record is in the store. `ok`: it succeeded and made its
    output files. `reason`: why not, if known."""

    job: str
    attempt: int
    job_uuid: str
    ok: bool
    status: str  # success, failed, timeout, cancelled, …
    returncode: int | None = None
    duration_s: float = 0.0
    reason: str = ""


class JobRetried(Struct, frozen=True, kw_only=True):
    """The job runs again after a failed attempt. `attempt`: the next one."""

    job: str
    attempt: int


class JobSkipped(Struct, frozen=True, kw_only=True):
    """The job does not run: something it needs failed, the run was stopped, or it was not selected."""

    job: str
    reason: str = ""


class RunEnded(Struct, frozen=True, kw_only=True):
    """The last event."""

    run_id: str
    status: str  # completed, failed, stopped
    duration_s: float


RunEvent = RunStarted | JobStarted | JobEnded | JobRetried | JobSkipped | RunEnded


class EventView(NoView):
    """Calls `emit` with an event for each change. An end is reported with the next state: only then it is
    known whether the job made its files and whether it is retried."""

    def __init__(self, plan: Plan, emit: Callable[[RunEvent], None]) -> None:
        self._names = [job.name for job in plan.jobs]
        self._emit = emit
        self._running: set[int] = set()
        self._reported: set[int] = set()  # jobs that ran or were skipped
        self._ended: dict[int, tuple[int, Record]] = {}  # whose next state is unknown

    def jobs_added(self, jobs: Sequence[PlannedJob]) -> None:
        self._names += [job.name for job in jobs]

    def attempt_began(self, index: int, attempt: int, job_uuid: str, at_us: int) -> None:
        self._start(index, attempt, job_uuid)

    def attempt_ended(self, index: int, attempt: int, record: Record) -> None:
        if index not in self._running:  # it could not be started, which is its end
            self._start(index, attempt, record.job.uuid)
        self._ended[index] = (attempt, record)

    def state_changed(self, index: int, state: JobState, why: str = "") -> None:
        if index in self._ended:
            self._report_end(index, state, why)
        elif state.is_final and index not in self._running | self._reported:
            self._reported.add(index)
            reason = why or ("not selected" if state is JobState.DISABLED else "")
            self._emit(JobSkipped(job=self._names[index], reason=reason))

    def close(self, status: RunStatus) -> None:
        for index in list(self._ended):
            self._report_end(index, JobState.TERMINATED, "")

    def _start(self, index: int, attempt: int, job_uuid: str) -> None:
        self._running.add(index)
        self._emit(JobStarted(job=self._names[index], attempt=attempt, job_uuid=job_uuid))

    def _report_end(self, index: int, state: JobState, why: str) -> None:
        attempt, record = self._ended.pop(index)
        self._running.discard(index)
        self._reported.add(index)
        outcome = record.outcome
        is_ok = state is JobState.COMPLETED
        self._emit(
            JobEnded(
                job=self._names[index],
                attempt=attempt,
                job_uuid=record.job.uuid,
                ok=is_ok,
                status=record.status.value,
                returncode=outcome.exit_code if outcome is not None else None,
                duration_s=outcome.duration_s if outcome is not None else 0.0,
                reason="" if is_ok else why or (outcome.error if outcome is not None else None) or "",
            )
        )
        if not state.is_final:
            self._emit(JobRetried(job=self._names[index], attempt=attempt + 1))
