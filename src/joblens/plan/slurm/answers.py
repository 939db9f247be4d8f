"""What Slurm's words mean for a place that was asked for."""

import re

from joblens.model.clusters.placing import PlaceEnding, PlaceState
from joblens.model.clusters.slurm import CANCELLED_REASON, ENDED_STATES, WAITING_STATES, WALLTIME_REASON
from joblens.model.jobs.job import Status
from joblens.model.values.units import format_duration

_COMPLETED = "COMPLETED"
_CANCELLED = "CANCELLED"
_OUT_OF_TIME = ("TIMEOUT", "DEADLINE")
# slurmstepd writes it into the output of the job before it signals the processes.
_NOTICE = re.compile(
    r"\*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT \S+(?: DUE TO ([A-Z][A-Z ]*[A-Z]))? \*\*\*"
)
_NOTICES = {"": _CANCELLED, "TIME LIMIT": "TIMEOUT", "PREEMPTION": "PREEMPTED", "NODE FAILURE": "NODE_FAIL"}

# It is worth asking again: the controller is away or busy, or the user has as many jobs there as allowed.
_PASSING = (
    "Unable to contact slurm controller",
    "Unable to contact",
    "did not answer",
    "Socket timed out",
    "Slurm temporarily unable",
    "temporarily unavailable",
    "Transport endpoint",
    "Zero Bytes were transmitted",
    "Connection refused",
    "connection failure",
    "Slurm backup controller",
    "Job violates accounting/QOS policy",
    "MaxSubmit",
    "Max jobs",
    "Too many",
    "cannot be started",
)

_MISTAKES = (
    *("unrecognized option", "invalid", "requires an argument", "doesn't allow an argument"),
    *("node configuration is not available", "specification can not be satisfied"),
)


def is_for_good(complaint: str) -> bool:
    """Whether sbatch would say the same the next time."""
    return not any(words.lower() in complaint.lower() for words in _PASSING)


def is_mistake(complaint: str) -> bool:
    """Of a trial: what was written is wrong, whatever is free or up at the moment."""
    return any(words in complaint.lower() for words in _MISTAKES)


def ending_of(
    state: str, job_id: str, *, cancelled_by: str = "", walltime_s: float | None = None
) -> PlaceEnding | None:
    """Returns how jobs end whose allocation ended in this state. None: it says nothing of them, they were
    lost with their node, or had to make room for others."""
    if state == _CANCELLED:
        by = f" by {cancelled_by}" if cancelled_by else ""
        return PlaceEnding(status=Status.CANCELLED, reason=CANCELLED_REASON, text=f"cancelled in Slurm{by}")
    if state in _OUT_OF_TIME:
        limit = f"its walltime of {format_duration(walltime_s)}" if walltime_s else "its walltime"
        limit = "its deadline" if state == "DEADLINE" else limit
        return PlaceEnding(
            status=Status.TIMEOUT,
            reason=WALLTIME_REASON,
            text=f"its Slurm allocation {job_id} reached {limit}",
        )
    return None


def state_in_notice(output: str) -> str:
    """Returns the state that Slurm announced in the output of a job; '': none."""
    notices = _NOTICE.findall(output)
    return _NOTICES.get(notices[-1], "") if notices else ""


def place_state(word: str) -> PlaceState:
    if word == _COMPLETED:
        return PlaceState.ENDED
    if word in ENDED_STATES:
        return PlaceState.GONE
    return PlaceState.WAITING if word in WAITING_STATES else PlaceState.RUNNING
