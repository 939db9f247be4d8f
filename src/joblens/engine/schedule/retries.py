"""Retries: the final state of a job whose attempt has ended, or another attempt, at once or after a pause.

The same function answers for an attempt that ended just now and for one that is replayed.
"""

from collections.abc import Iterator
from heapq import heappop, heappush

from msgspec import Struct
from msgspec.structs import replace

from joblens.engine.schedule.capacity import Choices, RunCapacity
from joblens.model.clusters.slurm import CANCELLED_REASON, WALLTIME_REASON
from joblens.model.delivery import RetryLost
from joblens.model.jobs.job import Requirements, Status
from joblens.model.runs.plan import Plan, PlannedJob
from joblens.model.runs.run import JobState
from joblens.model.runs.workflow_spec import ExecutionSpec, RetryRule

MOST_LOSSES = 3
_SIGNALLED = 128  # plus the number of the signal that ended it
NOT_STARTED = "not-started"
CUT_OFF = (Status.CANCELLED, Status.LOST)  # not ended by itself: as if a command beside the jobs had not run
UNWANTED = "someone asked for its end"
_NO_CHOICES = Choices()


class Ending(Struct, frozen=True):
    """How an attempt ended."""

    status: Status
    exit_code: int | None = None
    reason: str = ""
    outputs_missing: bool = False


class Failures(Struct, frozen=True):
    """Of a job so far. Losses are joblens' own fault and use up no retry."""

    counted: int = 0
    lost: int = 0


class Final(Struct, frozen=True):
    state: JobState
    why: str = ""


class Retry(Struct, frozen=True):
    """Another attempt, after the recovery script and the pause."""

    failures: Failures
    requirements: Requirements
    script: str | None = None
    pause_s: float = 0.0
    why: str = ""


def judge(
    plan: Plan,
    job: PlannedJob,
    ending: Ending,
    failures: Failures,
    asked: Requirements,
    offer: RunCapacity,
    choices: Choices = _NO_CHOICES,
) -> Final | Retry:
    """`asked`: the requirements of the attempt that ended."""
    if ending.status is Status.SUCCESS and not ending.outputs_missing:
        return Final(JobState.COMPLETED)
    if ending.status is Status.CANCELLED:
        is_in_slurm = ending.reason == CANCELLED_REASON
        return Final(JobState.TERMINATED, "cancelled in Slurm" if is_in_slurm else UNWANTED)
    if ending.status is Status.LOST:
        return _after_loss(job, failures, asked, choices)
    what = _what_happened(ending)
    rule = matching_rule(job, ending, plan.execution)
    counted = failures.counted + 1
    if rule is not None and counted <= rule.max_retries:
        return Retry(
            Failures(counted, failures.lost),
            grown(asked, rule, offer),
            rule.recovery_script,
            pause_s(rule, counted),
            f"{what}; retry {counted} of {rule.max_retries}",
        )
    if ending.status is Status.TIMEOUT:
        return Final(JobState.TERMINATED, what)
    if rule is None and plan.use_pending_failed:
        return Final(JobState.PENDING_FAILED, f"{what}, which no failure handler knows")
    return Final(JobState.FAILED, what if rule is None else f"{what}{_after_retries(counted - 1)}")


def _after_retries(count: int) -> str:
    if not count:
        return ""
    return " after 1 retry" if count == 1 else f" after {count} retries"


def _after_loss(job: PlannedJob, failures: Failures, asked: Requirements, choices: Choices) -> Final | Retry:
    if choices.lost_is_final:
        return Final(JobState.FAILED, "its worker was lost")
    if job.retry_lost is RetryLost.NEVER:
        return Final(JobState.FAILED, "it was lost, and must not run twice (retry_lost: never)")
    lost = failures.lost + 1
    if lost > MOST_LOSSES:
        return Final(JobState.FAILED, f"lost {lost} times together with the process that looked after it")
    return Retry(
        Failures(failures.counted, lost), asked, why="lost together with the process that looked after it"
    )


def _what_happened(ending: Ending) -> str:
    if ending.status is Status.TIMEOUT:
        is_walltime = ending.reason == WALLTIME_REASON
        return "its Slurm allocation reached its walltime" if is_walltime else "its time was up"
    if ending.reason == "out-of-memory":
        return "it ran out of memory"
    if ending.outputs_missing:
        return "it did not make all of its output files"
    if ending.status is Status.ERROR:
        return "it could not be started"
    if ending.reason == "signal" and ending.exit_code is not None and ending.exit_code > _SIGNALLED:
        return f"signal {ending.exit_code - _SIGNALLED}"
    return "it failed" if ending.exit_code is None else f"it ended with exit code {ending.exit_code}"


def exit_code_for_rules(ending: Ending, execution: ExecutionSpec) -> int | None:
    """Of what joblens or the kernel ended, rules see the code that `execution_config` gives it."""
    if ending.status is Status.TIMEOUT or ending.reason == "timeout":
        return execution.timeout_exit_code
    if ending.reason == "out-of-memory":
        return execution.oom_exit_code
    return ending.exit_code


def matching_rule(job: PlannedJob, ending: Ending, execution: ExecutionSpec) -> RetryRule | None:
    """The rule of the job's handler for this failure. Missing outputs have no exit code of their own: only a
    rule for all codes is for them."""
    if job.failure_handler is None:
        return None
    code = None if ending.outputs_missing else exit_code_for_rules(ending, execution)
    return job.failure_handler.rule_for(code)


def pause_s(rule: RetryRule, retry: int) -> float:
    """Before the first, second, … retry."""
    if rule.backoff_s <= 0:
        return 0.0
    # Capped before it is computed: a thousandth retry must not overflow.
    steps = min(retry - 1, 64)
    return float(min(rule.max_backoff_s, rule.backoff_s * rule.backoff_factor**steps))


def grown(asked: Requirements, rule: RetryRule, offer: RunCapacity) -> Requirements:
    """What was written, by the factors of the rule; never more than is offered, and never less than before:
    less may be offered now than when the attempt that ended was started."""
    memory, timeout_s = asked.memory_bytes, asked.timeout_s
    if memory is not None and rule.memory_factor != 1.0:
        memory = max(memory, min(int(memory * rule.memory_factor), offer.memory_bytes))
    if timeout_s is not None and rule.runtime_factor != 1.0:
        wanted_s = timeout_s * rule.runtime_factor
        timeout_s = max(timeout_s, wanted_s if offer.time_s is None else min(wanted_s, offer.time_s))
    if memory == asked.memory_bytes and timeout_s == asked.timeout_s:
        return asked
    return replace(asked, memory_bytes=memory, timeout_s=timeout_s)


class Past(Struct, frozen=True, kw_only=True):
    """`state`: a final one, or RUNNING where someone still looks after it. None: see `again`;
    without that it waits for its turn as if it had not been tried."""

    attempt: int
    requirements: Requirements
    failures: Failures = Failures()
    state: JobState | None = None
    again: Retry | None = None
    devices: tuple[str, ...] = ()
    why: str = ""
    is_unwanted: bool = False  # it runs, and someone asked for its end


class Pauses:
    def __init__(self) -> None:
        self._until_s: dict[int, float] = {}
        self._due: list[tuple[float, int]] = []  # heap over `_until_s`; what was removed is still inside

    def __contains__(self, index: int) -> bool:
        return index in self._until_s

    def __bool__(self) -> bool:
        return bool(self._until_s)

    def add(self, index: int, until_s: float) -> None:
        self._until_s[index] = until_s
        heappush(self._due, (until_s, index))

    def remove(self, index: int) -> bool:
        """Whether it was there."""
        return self._until_s.pop(index, None) is not None

    def clear(self) -> None:
        self._until_s.clear()

    def next_s(self) -> float | None:
        while self._due and self._until_s.get(self._due[0][1]) != self._due[0][0]:
            heappop(self._due)
        return self._due[0][0] if self._due else None

    def over(self, now_s: float) -> Iterator[int]:
        """Takes out those whose time has come."""
        while (due_s := self.next_s()) is not None and due_s <= now_s:
            index = heappop(self._due)[1]
            del self._until_s[index]
            yield index
