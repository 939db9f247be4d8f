"""Progress of a run as one value for every view, and the state of each job as shown to people.

In a stopped run, jobs that were cancelled with it count as ended; the text says what `joblens resume` will
do with them.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from joblens.engine.progress.estimate import Capacity, Estimate, Estimator
from joblens.engine.schedule.capacity import RunCapacity, whole_of
from joblens.engine.schedule.schedule import Schedule
from joblens.model.jobs.job import Requirements, Status
from joblens.model.runs.plan import Plan, PlannedJob
from joblens.model.runs.run import (
    DatasetFinalized,
    JobResult,
    JobState,
    RunEvent,
    RunStarted,
    RunStatus,
    StopAskedFor,
)
from joblens.plan.workflows.graph import depths_behind

_DONE = (JobState.COMPLETED,)
_NOT_DONE_WELL = (JobState.FAILED, JobState.TERMINATED, JobState.PENDING_FAILED)
_NAMES_SHOWN = 3


class StageProgress(Struct, frozen=True):
    """Jobs that could run at the same time with enough capacity."""

    name: str
    total: int  # without jobs that are not selected for this run
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    running: int = 0


class RunningJob(Struct, frozen=True, kw_only=True):
    index: int
    name: str
    job_uuid: str
    attempt: int
    elapsed_s: float
    expected_s: float | None = None
    cpu_percent: float | None = None
    memory_bytes: int | None = None
    where: str = ""  # node or worker; '': this machine


class JobFailure(Struct, frozen=True, kw_only=True):
    index: int
    name: str
    attempt: int
    reason: str
    last_line: str = ""  # of its standard error
    number: int | None = None
    retry: str = ""  # 'retrying with 80.0 MiB (1 of 3)'; empty: it is final


class RunProgress(Struct, frozen=True, kw_only=True):
    name: str
    run: str  # 3.2
    status: RunStatus
    elapsed_s: float
    stages: tuple[StageProgress, ...]
    running: tuple[RunningJob, ...] = ()
    failures: tuple[JobFailure, ...] = ()
    ready: int = 0
    cpus: tuple[float, float] = (0.0, 0.0)  # reserved, offered
    memory_bytes: tuple[int, int] = (0, 0)
    gpus: tuple[int, int] = (0, 0)
    estimate: Estimate = Estimate()
    message: str = ""

    def count(self, what: str) -> int:
        return sum(getattr(stage, what) for stage in self.stages)

    @property
    def total(self) -> int:
        return self.count("total")

    @property
    def finished(self) -> int:
        """Jobs whose state is final."""
        return self.count("done") + self.count("failed") + self.count("cancelled")


class _Stage:
    __slots__ = ("counts", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.counts = dict.fromkeys(JobState, 0)

    def progress(self) -> StageProgress:
        counts = self.counts
        return StageProgress(
            self.name,
            total=sum(counts.values()) - counts[JobState.DISABLED],
            done=sum(counts[state] for state in _DONE),
            failed=sum(counts[state] for state in _NOT_DONE_WELL),
            cancelled=counts[JobState.CANCELED],
            running=counts[JobState.RUNNING],
        )


class _Start(Struct):
    job_uuid: str
    attempt: int
    at_us: int


class ProgressTracker:
    """Follows a run change by change; a change costs the same in a run of ten jobs and of a hundred
    thousand."""

    def __init__(
        self,
        plan: Plan,
        stages: Sequence[Sequence[int]],
        offer: RunCapacity,
        known_s: Mapping[str, float],
        *,
        run: str,
        began_at_us: int,
    ) -> None:
        """`stages`: indices of jobs, those without dependencies first. `known_s`: durations in earlier
        runs. `began_at_us`: start of the run; of a resumed one, moved back by the time it was driven
        before."""
        self._plan = plan
        self._run = run
        self.began_at_us = began_at_us
        self.ended_at_us: int | None = None
        self._offer = offer
        capacity = Capacity(offer.cpus or None, offer.memory_bytes or None, offer.most_jobs)
        self._estimator = Estimator(plan, known_s, capacity)
        self._stages = [_Stage(stage_name(plan, indexes)) for indexes in stages]
        self._stage_of = [0] * len(plan.jobs)
        for stage, indexes in enumerate(stages):
            for index in indexes:
                self._stage_of[index] = stage
        self._all = _Stage("")
        self._all.counts[JobState.BLOCKED] = len(plan.jobs)
        self._states = [JobState.BLOCKED] * len(plan.jobs)
        for stage in self._stage_of:
            self._stages[stage].counts[JobState.BLOCKED] += 1
        self._begun: dict[int, _Start] = {}
        self._cancelled: set[int] = set()
        self.failures: dict[int, JobFailure] = {}
        self.message = ""
        self.status = RunStatus.RUNNING

    def add_jobs(self, jobs: Sequence[PlannedJob]) -> None:
        """Adds the next jobs of the plan in order, each to the stage after those it depends on."""
        first = len(self._states)
        by_stage: dict[int, list[int]] = {}
        stages = depths_behind([job.depends_on for job in jobs], first, self._stage_of)
        for index, stage in enumerate(stages, first):
            by_stage.setdefault(stage, []).append(index)
        self._stage_of += stages
        self._states += [JobState.BLOCKED] * len(jobs)
        for stage, added in sorted(by_stage.items()):
            if stage == len(self._stages):
                self._stages.append(_Stage(stage_name(self._plan, added)))
            self._stages[stage].counts[JobState.BLOCKED] += len(added)
        self._all.counts[JobState.BLOCKED] += len(jobs)
        self._estimator.add_jobs(jobs)

    def state_of(self, index: int) -> JobState:
        return self._states[index]

    def state_changed(self, index: int, state: JobState, now_us: int) -> None:
        before = self._states[index]
        if state is JobState.TERMINATED and index in self._cancelled:
            state = JobState.CANCELED  # it did not fail
        if state is before:
            return
        for counts in (self._stages[self._stage_of[index]].counts, self._all.counts):
            counts[before] -= 1
            counts[state] += 1
        self._states[index] = state
        self._estimator.changed(index, state, now_us / 1e6)
        if state is JobState.COMPLETED:
            self.failures.pop(index, None)
        if state is not JobState.RUNNING:
            self._begun.pop(index, None)

    def attempt_began(self, index: int, attempt: int, job_uuid: str, at_us: int) -> None:
        self.state_changed(index, JobState.RUNNING, at_us)
        self._begun[index] = _Start(job_uuid, attempt, at_us)

    def attempt_succeeded(self, index: int, duration_s: float) -> None:
        self._estimator.succeeded(index, duration_s)

    def attempt_failed(self, failure: JobFailure) -> None:
        self.failures[failure.index] = failure

    def attempt_cancelled(self, index: int) -> None:
        self._cancelled.add(index)

    def finished(self) -> tuple[int, int]:
        """Returns (jobs in a final state, all jobs)."""
        all_jobs = self._all.progress()
        return all_jobs.done + all_jobs.failed + all_jobs.cancelled, all_jobs.total

    def elapsed_s(self, now_us: int) -> float:
        last_us = now_us if self.ended_at_us is None else self.ended_at_us
        return max(0.0, (last_us - self.began_at_us) / 1e6)

    def running_jobs(self) -> list[tuple[int, str]]:
        """Returns (index, uuid), the longest running first."""
        return [(index, begun.job_uuid) for index, begun in self._begun.items()]

    def progress(
        self, now_us: int, usage: Mapping[str, tuple[float | None, int | None]] | None = None
    ) -> RunProgress:
        """`usage`: (CPU percent, memory) now, by job uuid."""
        requirements = [self._plan.jobs[index].requirements for index in self._begun]
        return RunProgress(
            name=self._plan.name,
            run=self._run,
            status=self.status,
            elapsed_s=self.elapsed_s(now_us),
            stages=tuple(one for stage in self._stages if (one := stage.progress()).total),
            running=tuple(self._running(index, now_us, usage or {}) for index in self._begun),
            failures=tuple(self.failures.values()),
            ready=self._all.counts[JobState.READY],
            cpus=(sum(asked.cpus or 1.0 for asked in requirements), self._offer.cpus),
            memory_bytes=(_memory_of(requirements), self._offer.memory_bytes),
            gpus=(sum(asked.gpus or 0 for asked in requirements), whole_of(self._offer).gpus),
            estimate=self._estimator.estimate(now_us / 1e6),
            message=self.message,
        )

    def _running(
        self, index: int, now_us: int, usage: Mapping[str, tuple[float | None, int | None]]
    ) -> RunningJob:
        begun = self._begun[index]
        cpu, memory = usage.get(begun.job_uuid, (None, None))
        return RunningJob(
            index=index,
            name=self._plan.jobs[index].name,
            job_uuid=begun.job_uuid,
            attempt=begun.attempt,
            elapsed_s=max(0.0, (now_us - begun.at_us) / 1e6),
            expected_s=self._estimator.expected_s(index),
            cpu_percent=cpu,
            memory_bytes=memory,
        )


def _memory_of(requirements: Sequence[Requirements]) -> int:
    return sum(asked.memory_bytes or 0 for asked in requirements)


def stage_name(plan: Plan, indexes: Sequence[int]) -> str:
    """Returns the common prefix of the jobs of a stage (work_1, work_2: 'work_…'), or the first few names."""
    if not indexes:
        return ""
    names = [plan.jobs[index].name for index in indexes]
    if len(names) == 1:
        return names[0]
    common = _common_start(names)
    if len(common) >= 3:
        return f"{common}…"
    labels = list(dict.fromkeys(map(_label, _by_entry(plan, indexes))))
    shown = ", ".join(labels[:_NAMES_SHOWN])
    return f"{shown}, …" if len(labels) > _NAMES_SHOWN else shown


def _label(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    common = _common_start(names)
    return f"{common}…" if common else names[0]


def _by_entry(plan: Plan, indexes: Sequence[int]) -> list[list[str]]:
    parts: dict[int, list[str]] = {}
    for index in indexes:
        parts.setdefault(plan.jobs[index].spec_job, []).append(plan.jobs[index].name)
    return list(parts.values())


def _common_start(names: Sequence[str]) -> str:
    first, last = min(names), max(names)
    length = next(
        (stage for stage, (one, other) in enumerate(zip(first, last, strict=False)) if one != other),
        min(len(first), len(last)),
    )
    return first[:length]


TIME = "time"  # `StopAskedFor.by` of a run that reached its --time
_KILL = "kill"
_RESUME = "`joblens resume` continues it"


def last_stop(events: Iterable[RunEvent]) -> StopAskedFor | None:
    """Returns the stop that was requested since the run was last started; KILL outweighs DRAIN."""
    found: StopAskedFor | None = None
    for event in events:
        if isinstance(event.fact, RunStarted):
            found = None
        elif isinstance(event.fact, StopAskedFor) and (found is None or found.how != _KILL):
            found = event.fact
    return found


def failed_finalizations(events: Iterable[RunEvent]) -> list[DatasetFinalized]:
    """Returns datasets that could not be finalized since the run was last started, or by hand after that."""
    last: dict[int, DatasetFinalized] = {}
    for event in events:
        if isinstance(event.fact, RunStarted):
            last.clear()
        elif isinstance(event.fact, DatasetFinalized):
            last[event.fact.index] = event.fact
    return [fact for _, fact in sorted(last.items()) if fact.error]


def standing(
    schedule: Schedule, index: int, status: RunStatus, stop: StopAskedFor | None, last: JobResult | None
) -> tuple[JobState, str]:
    """Returns the state of a job, and what it waits for or how it ended. `schedule`: the run restored from
    its events; `last`: the job's last attempt."""
    state = schedule.state_of(index)
    if state.is_final or state is JobState.RUNNING:
        return state, schedule.why(index)
    if status is RunStatus.STOPPED and stop is not None and stop.how == _KILL:
        return _ended_with_the_run(schedule, index, stop, last)
    if state is JobState.READY:
        return state, _waiting(schedule, index, status)
    return state, schedule.why(index)


def _ended_with_the_run(
    schedule: Schedule, index: int, stop: StopAskedFor, last: JobResult | None
) -> tuple[JobState, str]:
    why = "the run timed out" if stop.by == TIME else "the run was cancelled"
    if _needs_what_failed(schedule, index):
        return JobState.CANCELED, f"{why}; it {schedule.why(index)}"
    if last is None or not schedule.attempt_of(index):
        return JobState.CANCELED, f"{why} before it started; {_RESUME}"
    if last.status is Status.CANCELLED or (index, last.attempt) in stop.ended:
        return JobState.TERMINATED, f"{why}; `joblens resume` starts it again"
    return JobState.FAILED, f"{why} before its next attempt; {_RESUME}"


def _needs_what_failed(schedule: Schedule, index: int) -> bool:
    if schedule.state_of(index) is not JobState.BLOCKED:
        return False
    needed = [schedule.state_of(each) for each in schedule.plan.jobs[index].depends_on]
    return any(state.is_final and state not in (JobState.COMPLETED, JobState.DISABLED) for state in needed)


def _waiting(schedule: Schedule, index: int, status: RunStatus) -> str:
    if status is RunStatus.RUNNING:
        return "waits for its turn"
    if status is RunStatus.CREATED:
        return "the run has not started"
    if schedule.attempt_of(index):
        return f"the run ended before its next attempt; {_RESUME}"
    return f"was not started before the run ended; {_RESUME}"
