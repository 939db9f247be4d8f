"""How a run ended, as people are told."""

from collections.abc import Mapping

from msgspec import Struct

from joblens.model.runs.run import JobState, RunStatus


class FailedJob(Struct, frozen=True):
    name: str
    state: JobState
    why: str
    logs_dir: str = ""
    number: int | None = None  # of its last attempt's record


class FailedAction(Struct, frozen=True):
    """One command of an action that did not succeed; `name` is that of its record."""

    name: str  # action-1.2: the second command of the first action
    command: str
    why: str
    number: int | None = None
    logs_dir: str = ""


class RunEnding(Struct, frozen=True, kw_only=True):
    """`failures`: the first of them; `more_failures`: how many there are beyond."""

    label: str  # 3.1
    name: str
    status: RunStatus
    wall_s: float
    counts: Mapping[JobState, int]
    failures: tuple[FailedJob, ...] = ()
    more_failures: int = 0
    actions: tuple[FailedAction, ...] = ()  # those that failed
    datasets: tuple[tuple[str, str], ...] = ()  # those that could not be finalized, each with its error
    file: str = ""  # it came from, where there is one
    has_too_small: bool = False  # jobs that ran out of memory or time: as they are they would fail again
