"""Why Slurm ends the allocation that this process runs in, asked from inside."""

import os
import pwd

from joblens.model.clusters.placing import PlaceEnding
from joblens.model.clusters.slurm import ENDED_STATES
from joblens.model.errors import JoblensError
from joblens.plan.slurm.answers import ending_of, state_in_notice
from joblens.runners.slurm.commands import SlurmCommands

_ASK_S = 3.0  # Slurm kills what is left after KillWait, 30 s as a rule
_READ_OF_OUTPUT = 1 << 16
_EARLY_S = 90.0  # Slurm may send the signal before the end of an allocation a minute early


def why_slurm_ends(
    job_id: str, *, walltime_s: float | None, left_s: float | None, lead_s: float
) -> PlaceEnding | None:
    """`left_s`: until the allocation's time is up; `lead_s`: how long before that Slurm sends a signal. None:
    the allocation was preempted, or it only got a signal."""
    commands = SlurmCommands(_ASK_S)
    in_queue = _state_in_queue(commands, job_id)
    in_accounts, by = "", ""
    if in_queue != "RUNNING":
        in_accounts, by = _state_in_accounts(commands, job_id)
    is_nearly_over = left_s is not None and left_s <= lead_s + _EARLY_S
    state = state_of_ending(in_queue, in_accounts, _own_output(), is_nearly_over=is_nearly_over)
    return ending_of(state, job_id, cancelled_by=by, walltime_s=walltime_s)


def state_of_ending(in_queue: str, in_accounts: str, output: str, *, is_nearly_over: bool) -> str:
    """Returns the state in which the job is going to end. A job that only got a signal is RUNNING in the
    queue: the notice in its output comes with any signal. The accounts may be late."""
    if in_queue == "RUNNING":
        return "TIMEOUT" if is_nearly_over else in_queue
    if in_accounts in ENDED_STATES:
        return in_accounts
    return state_in_notice(output) if in_queue else ""


def _state_in_queue(commands: SlurmCommands, job_id: str) -> str:
    try:
        states = [job.state for job in commands.squeue([job_id]) if job.job_id == job_id]
    except (JoblensError, OSError):
        return ""
    return states[-1] if states else ""


def _state_in_accounts(commands: SlurmCommands, job_id: str) -> tuple[str, str]:
    try:
        jobs = commands.sacct([job_id])
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
