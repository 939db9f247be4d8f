"""How a job of a run stands, as everyone is told it: the summary, the results, whoever watches.

While a run is stopped, what was ended with it counts as ended; what `joblens resume` will do with it is said
in words."""

from collections.abc import Iterable

from joblens.engine.schedule.schedule import Schedule
from joblens.model.jobs.job import Status
from joblens.model.runs.run import (
    DatasetFinalized,
    JobResult,
    JobState,
    RunEvent,
    RunStarted,
    RunStatus,
    StopAskedFor,
)

TIME = "time"  # who asked for the end of a run whose --time was up
_KILL = "kill"
_GOES_ON = "`joblens resume` goes on with it"


def last_stop(events: Iterable[RunEvent]) -> StopAskedFor | None:
    """The end that was asked for since the run was last started; a harder one counts more."""
    found: StopAskedFor | None = None
    for event in events:
        if isinstance(event.fact, RunStarted):
            found = None
        elif isinstance(event.fact, StopAskedFor) and (found is None or found.how != _KILL):
            found = event.fact
    return found


def failed_finalizations(events: Iterable[RunEvent]) -> list[DatasetFinalized]:
    """Datasets that could not be finalized since the run was last started, or by hand after that."""
    last: dict[int, DatasetFinalized] = {}
    for event in events:
        if isinstance(event.fact, RunStarted):
            last.clear()
        elif isinstance(event.fact, DatasetFinalized):
            last[event.fact.place] = event.fact
    return [fact for _, fact in sorted(last.items()) if fact.error]


def standing(
    schedule: Schedule, index: int, status: RunStatus, stop: StopAskedFor | None, last: JobResult | None
) -> tuple[JobState, str]:
    """-> its state, and what it waits for or how it ended. `schedule`: the run put together from its facts;
    `last`: the job's last attempt."""
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
    why = "the run's time was up" if stop.by == TIME else "the run was ended"
    if _needs_what_failed(schedule, index):
        return JobState.CANCELED, f"{why}; it {schedule.why(index)}"
    if last is None or not schedule.attempt_of(index):
        return JobState.CANCELED, f"{why} before it began; {_GOES_ON}"
    if last.status is Status.CANCELLED or (index, last.attempt) in stop.ended:
        return JobState.TERMINATED, f"{why}; `joblens resume` starts it again"
    return JobState.FAILED, f"{why} before its next attempt; {_GOES_ON}"


def _needs_what_failed(schedule: Schedule, index: int) -> bool:
    if schedule.state_of(index) is not JobState.BLOCKED:
        return False
    needed = [schedule.state_of(each) for each in schedule.plan.jobs[index].depends_on]
    return any(state.is_final and state not in (JobState.COMPLETED, JobState.DISABLED) for state in needed)


def _waiting(schedule: Schedule, index: int, status: RunStatus) -> str:
    if status is RunStatus.RUNNING:
        return "waits for its turn"
    if status is RunStatus.CREATED:
        return "the run has not begun"
    if schedule.attempt_of(index):
        return f"the run ended before its next attempt; {_GOES_ON}"
    return f"was not started before the run ended; {_GOES_ON}"
