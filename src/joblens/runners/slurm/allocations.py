"""Slurm allocations of a run: their states, why one ended, and which are idle."""

import os
import pwd
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from msgspec import Struct, field

from joblens.model.clusters.placement import AllocationEnding, AllocationEvent, AllocationState, Placed
from joblens.model.clusters.slurm import (
    CANCELLED_REASON,
    ENDED_STATES,
    WAITING_STATES,
    WALLTIME_REASON,
    QueuedJob,
)
from joblens.model.errors import InputError, JoblensError, PlacingError
from joblens.model.jobs.job import Status
from joblens.model.values.units import format_duration
from joblens.runners.slurm.commands import SlurmCommands
from joblens.runners.slurm.terms import seconds_asked

_COMPLETED = "COMPLETED"
_CANCELLED = "CANCELLED"
_OUT_OF_TIME = ("TIMEOUT", "DEADLINE")
# slurmstepd writes it into the output of the job before it signals the processes.
_NOTICE = re.compile(
    r"\*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT \S+(?: DUE TO ([A-Z][A-Z ]*[A-Z]))? \*\*\*"
)
_NOTICES = {"": _CANCELLED, "TIME LIMIT": "TIMEOUT", "PREEMPTION": "PREEMPTED", "NODE FAILURE": "NODE_FAIL"}

# Worth a retry: the controller is unavailable or busy, or the user has the maximum number of jobs.
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


def is_permanent(complaint: str) -> bool:
    """Returns whether sbatch would refuse the same request again."""
    return not any(words.lower() in complaint.lower() for words in _PASSING)


def is_mistake(complaint: str) -> bool:
    """Returns whether the request itself is wrong, whatever is free or available at the moment."""
    return any(words in complaint.lower() for words in _MISTAKES)


def ending_of(
    state: str, job_id: str, *, cancelled_by: str = "", walltime_s: float | None = None
) -> AllocationEnding | None:
    """Returns how jobs end whose allocation ended in this state, or None if the state does not decide: they
    were lost with their node, or were preempted."""
    if state == _CANCELLED:
        by = f" by {cancelled_by}" if cancelled_by else ""
        return AllocationEnding(
            status=Status.CANCELLED, reason=CANCELLED_REASON, text=f"cancelled in Slurm{by}"
        )
    if state in _OUT_OF_TIME:
        limit = f"its walltime of {format_duration(walltime_s)}" if walltime_s else "its walltime"
        limit = "its deadline" if state == "DEADLINE" else limit
        return AllocationEnding(
            status=Status.TIMEOUT,
            reason=WALLTIME_REASON,
            text=f"its Slurm allocation {job_id} reached {limit}",
        )
    return None


def state_in_notice(output: str) -> str:
    """Returns the state that Slurm announced in the output of a job; '': none."""
    notices = _NOTICE.findall(output)
    return _NOTICES.get(notices[-1], "") if notices else ""


def allocation_state(word: str) -> AllocationState:
    if word == _COMPLETED:
        return AllocationState.ENDED
    if word in ENDED_STATES:
        return AllocationState.GONE
    return AllocationState.WAITING if word in WAITING_STATES else AllocationState.RUNNING


_ASK_S = 3.0  # Slurm kills the rest after KillWait, usually 30 s
_READ_OF_OUTPUT = 1 << 16
_EARLY_S = 90.0  # Slurm may send the signal before the end of an allocation a minute early


def why_slurm_ends(
    job_id: str, *, walltime_s: float | None, left_s: float | None, lead_s: float
) -> AllocationEnding | None:
    """Returns why Slurm ends this allocation, or None if it was preempted or only got a signal. `left_s`:
    until its time limit; `lead_s`: how long before that Slurm sends a signal."""
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
    """Returns the name of a user, whom Slurm reports by number."""
    try:
        return pwd.getpwuid(int(uid)).pw_name
    except (KeyError, ValueError, OverflowError):
        return uid if not uid.isdecimal() else f"user {uid}"


def _own_output() -> str:
    """Returns the end of the file that Slurm writes the output of this process to; '' if it is no file."""
    try:
        with open("/proc/self/fd/2", "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - _READ_OF_OUTPUT))
            return file.read(_READ_OF_OUTPUT).decode("utf-8", "replace")
    except OSError:
        return ""


_FORGOTTEN_S = 60.0  # before an allocation that neither squeue nor sacct know is given up
_SOON_S = 1.0  # between polls, after a change
_MANY_IDS = 200  # above this number all of the user's jobs are listed: the command line would be too long
GONE_WORD = "FORGOTTEN"
_BY_OTHERS = ("NODE_FAIL", "PREEMPTED")  # ended for reasons outside the allocation and its request


class LiveAllocation(Struct):
    placed: Placed
    config_path: str = ""  # of its configuration; '': an earlier driver had it
    output: str = ""  # output file
    queues: tuple[str, ...] = ()  # queues that it serves
    asked: dict[str, str] = field(default_factory=dict)
    state: AllocationState = AllocationState.WAITING
    reported: tuple[str, str] = ("", "")
    missing_since_s: float | None = None

    @property
    def is_allocation(self) -> bool:
        return self.placed.placement.is_allocation


class SlurmAllocations:
    def __init__(
        self, commands: SlurmCommands, poll_s: float, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._commands = commands
        self._poll_s = poll_s
        self.now_s = now_s
        self._next_ask_s = 0.0
        self.live: dict[str, LiveAllocation] = {}
        self._of: dict[str, set[str]] = {}  # uuid -> ids

    def add(self, allocation: LiveAllocation) -> None:
        job_id = allocation.placed.placement.job_id
        self.live[job_id] = allocation
        for uuid in allocation.placed.uuids:
            self._of.setdefault(uuid, set()).add(job_id)
        self._next_ask_s = min(self._next_ask_s, self.now_s() + _SOON_S)

    def serving(self, queue: str) -> list[LiveAllocation]:
        return [allocation for allocation in self.live.values() if queue in allocation.queues]

    def only_for(self, uuids: Iterable[str]) -> list[str]:
        """Returns the ids of allocations that are only for these jobs."""
        wanted = set(uuids)
        ids = {job_id for uuid in wanted for job_id in self._of.get(uuid, ())}
        return sorted(one for one in ids if set(self.live[one].placed.uuids) <= wanted)

    def remove(self, job_id: str) -> LiveAllocation | None:
        allocation = self.live.pop(job_id, None)
        for uuid in allocation.placed.uuids if allocation is not None else ():
            left = self._of.get(uuid, set())
            left.discard(job_id)
            if not left:
                self._of.pop(uuid, None)
        return allocation

    def poll(self) -> list[tuple[AllocationEvent, LiveAllocation]]:
        """Returns allocations whose state changed. Slurm is polled seldom, because it serves many users."""
        now_s = self.now_s()
        if not self.live or now_s < self._next_ask_s:
            return []
        jobs = {job.job_id: job for job in self._ask()}
        missing = [job_id for job_id in self.live if job_id not in jobs]
        jobs |= self._ask_accounts(missing, now_s)
        news = []
        for job_id, allocation in list(self.live.items()):
            job = jobs.get(job_id)
            one = self._news(allocation, job) if job is not None else self._lost_event(allocation, now_s)
            if one is not None:
                news.append((one, allocation))
        self._next_ask_s = now_s + (min(_SOON_S, self._poll_s) if news else self._poll_s)
        return news

    def _ask(self) -> list[QueuedJob]:
        ids = sorted({job_id.partition("_")[0] for job_id in self.live})
        return self._commands.squeue(ids if len(ids) <= _MANY_IDS else None)

    def _ask_accounts(self, missing: Sequence[str], now_s: float) -> dict[str, QueuedJob]:
        """Returns jobs that squeue no longer lists. Not every site has accounting."""
        if not missing:
            return {}
        for job_id in missing:
            allocation = self.live[job_id]
            allocation.missing_since_s = allocation.missing_since_s or now_s
        try:
            accounts = self._commands.sacct(missing)
        except PlacingError:
            return {}
        rows = [account.row for account in accounts if account.is_over]
        return {
            row.job_id: QueuedJob(job_id=row.job_id, state=row.state, reason=row.reason, nodes=row.nodes)
            for row in rows
            if row.job_id in self.live
        }

    def _news(self, allocation: LiveAllocation, job: QueuedJob) -> AllocationEvent | None:
        allocation.missing_since_s = None
        state = allocation_state(job.state)
        report = (job.state, job.reason if state is AllocationState.WAITING else "")
        if report == allocation.reported:
            return None
        allocation.reported, allocation.state = report, state
        return AllocationEvent(
            job_id=job.job_id,
            state=state,
            word=job.state,
            reason=job.reason,
            uuids=allocation.placed.uuids,
            is_by_others=job.state in _BY_OTHERS,
            ending=self._ending(allocation, job) if state is AllocationState.GONE else None,
        )

    def _ending(self, allocation: LiveAllocation, job: QueuedJob) -> AllocationEnding | None:
        """Returns how the job ends with it. A walltime ends the job that had all of it; jobs that shared it
        run again."""
        walltime_s = job.time_limit_s or seconds_asked(allocation.asked)
        ending = ending_of(job.state, job.job_id, walltime_s=walltime_s)
        if ending is None or (ending.status is Status.TIMEOUT and allocation.is_allocation):
            return None
        if ending.status is Status.CANCELLED:
            return ending_of(job.state, job.job_id, cancelled_by=self._who_cancelled(job.job_id))
        return ending

    def _who_cancelled(self, job_id: str) -> str:
        """Returns the user, from the accounts."""
        try:
            jobs = self._commands.sacct([job_id])
        except (PlacingError, InputError):
            return ""
        return user_name(jobs[-1].row.cancelled_by) if jobs and jobs[-1].row.cancelled_by else ""

    def _lost_event(self, allocation: LiveAllocation, now_s: float) -> AllocationEvent | None:
        if allocation.missing_since_s is None or now_s - allocation.missing_since_s < _FORGOTTEN_S:
            return None
        return AllocationEvent(
            job_id=allocation.placed.placement.job_id,
            state=AllocationState.GONE,
            word=GONE_WORD,
            reason="neither squeue nor sacct know it",
            uuids=allocation.placed.uuids,
            is_by_others=True,
        )


_IDLE_S = 2.0  # more jobs of its kind may follow an ended one
_FOR_NODES = ("Resources", "Priority")


class IdleAllocations:
    def __init__(self) -> None:
        self._since_s: dict[str, float] = {}
        self._reported: set[str] = set()

    def ending_now(
        self, live: Mapping[str, LiveAllocation], busy: Collection[str], now_s: float
    ) -> list[str]:
        """Returns the ids of allocations that end now, each once. `busy`: queues with unfinished jobs."""
        idle = {
            job_id
            for job_id, allocation in live.items()
            if allocation.is_allocation
            and allocation.state is AllocationState.RUNNING
            and allocation.queues
            and not any(queue in busy for queue in allocation.queues)
        }
        self._since_s = {job_id: self._since_s.get(job_id, now_s) for job_id in idle}
        self._reported &= idle
        if not any(_waits_for_nodes(allocation) for allocation in live.values()):
            return []
        due = [one for one in sorted(idle - self._reported) if now_s - self._since_s[one] >= _IDLE_S]
        self._reported.update(due)
        return due


def _waits_for_nodes(allocation: LiveAllocation) -> bool:
    """Returns whether it waits for nodes, or for a share of the user's limit."""
    reason = allocation.reported[1]
    return allocation.state is AllocationState.WAITING and (reason in _FOR_NODES or "Limit" in reason)
