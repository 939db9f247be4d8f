"""Why Slurm ends the allocation that this process runs in, asked from inside."""

import os
import pwd

from joblens.model.errors import JoblensError
from joblens.model.placing import PlaceEnding
from joblens.plan.slurm_answers import ending_of, state_in_notice
from joblens.runners.slurm_commands import SlurmCommands

_ASK_S = 3.0  # Slurm kills what is left after KillWait, 30 s as a rule
_READ_OF_OUTPUT = 1 << 16
_EARLY_S = 90.0  # Slurm may send the signal before the end of an allocation a minute early


def why_slurm_ends(
    job_id: str, *, walltime_s: float | None, left_s: float | None, lead_s: float
) -> PlaceEnding | None:
    """`left_s`: until the allocation's time is up; `lead_s`: how long before that Slurm sends a signal. None:
    the allocation was preempted, or somebody only sent a signal."""
    state, by = _state_in_accounts(job_id)
    notice = state_in_notice(_own_output())
    if not by and notice:
        state = notice  # the accounts may be late
    if left_s is not None and left_s <= lead_s + _EARLY_S and state in ("", "RUNNING"):
        state = "TIMEOUT"
    return ending_of(state, job_id, cancelled_by=by, walltime_s=walltime_s)


def _state_in_accounts(job_id: str) -> tuple[str, str]:
    try:
        jobs = SlurmCommands(_ASK_S).sacct([job_id])
    except (JoblensError, OSError):
        return "", ""
    return (jobs[-1].row.state, user_name(jobs[-1].row.cancelled_by)) if jobs else ("", "")


def user_name(uid: str) -> str:
    """Slurm tells who cancelled a job by number."""
    try:
        return pwd.getpwuid(int(uid)).pw_name
    except (KeyError, ValueError, OverflowError):
        return uid if not uid.isdecimal() else f"user {uid}"


def _own_output() -> str:
    """Returns the end of the file that Slurm writes the output of this process to; '' where it is no file."""
    try:
        with open("/proc/self/fd/2", "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - _READ_OF_OUTPUT))
            return file.read(_READ_OF_OUTPUT).decode("utf-8", "replace")
    except OSError:
        return ""
