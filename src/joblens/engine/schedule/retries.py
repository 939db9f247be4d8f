"""Retries: the final state of a job whose attempt has ended, or another attempt, at once or after a pause.

The same function judges an attempt that has just ended and one that is replayed.
"""

from collections.abc import Iterator
from heapq import heappop, heappush

from msgspec import Struct
from msgspec.structs import replace

from joblens.engine.schedule.capacity import Choices, RunCapacity
from joblens.model.clusters.slurm import CANCELLED_REASON, WALLTIME_REASON
from joblens.model.jobs.job import Requirements, RetryLost, Status
from joblens.model.runs.plan import Plan, PlannedJob
from joblens.model.runs.run import JobState
from joblens.model.runs.workflow_spec import ExecutionSpec, RetryRule
from joblens.model.values.units import format_bytes, format_duration

MOST_LOSSES = 3
_SIGNALLED = 128  # plus the number of the signal
NOT_STARTED = "not-started"
CUT_OFF = (Status.CANCELLED, Status.LOST)  # did not end by itself: treated as if it had not run
CANCELLED = "cancelled"
_NO_CHOICES = Choices()


class Ending(Struct, frozen=True):
    """End of an attempt."""

    status: Status
    exit_code: int | None = None
    reason: str = ""
    outputs_missing: bool = False


class Failures(Struct, frozen=True):
    """Failures of a job so far. Losses are joblens' own fault and use up no retry."""

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
    """Returns the consequence of an attempt's end. `asked`: its requirements."""
    if ending.status is Status.SUCCESS and not ending.outputs_missing:
        return Final(JobState.COMPLETED)
    if ending.status is Status.CANCELLED:
        is_in_slurm = ending.reason == CANCELLED_REASON
        return Final(JobState.TERMINATED, "cancelled in Slurm" if is_in_slurm else CANCELLED)
    if ending.status is Status.LOST:
        return _after_loss(job, failures, asked, choices)
    what = _what_happened(ending)
    rule = matching_rule(job, ending, plan.execution)
    counted = failures.counted + 1
    if rule is not None and counted <= rule.max_retries:
        larger = grown(asked, rule, offer)
        return Retry(
            Failures(counted, failures.lost),
            larger,
            rule.recovery_script,
            pause_s(rule, counted),
            f"{what}; retrying{_with_more(asked, larger)} ({counted} of {rule.max_retries})",
        )
    if ending.status is Status.TIMEOUT:
        return Final(JobState.TERMINATED, what)
    if rule is None and plan.use_pending_failed:
        return Final(JobState.PENDING_FAILED, f"{what}, for which no failure handler has a rule")
    return Final(JobState.FAILED, what if rule is None else f"{what}{_after_retries(counted - 1)}")


def _with_more(asked: Requirements, larger: Requirements) -> str:
    """Returns ' with 80.0 MiB and 2m', or '' if the next attempt gets no more than the last one."""
    amounts = []
    if larger.memory_bytes != asked.memory_bytes:
        amounts.append(format_bytes(larger.memory_bytes))
    if larger.timeout_s != asked.timeout_s and larger.timeout_s is not None:
        amounts.append(format_duration(larger.timeout_s))
    return f" with {' and '.join(amounts)}" if amounts else ""


def _after_retries(count: int) -> str:
    if not count:
        return ""
    return " after 1 retry" if count == 1 else f" after {count} retries"


def _after_loss(job: PlannedJob, failures: Failures, asked: Requirements, choices: Choices) -> Final | Retry:
    if choices.lost_is_final:
        return Final(JobState.FAILED, "lost with its worker")
    if job.retry_lost is RetryLost.NEVER:
        return Final(JobState.FAILED, "lost, and must not run twice (retry_lost: never)")
    lost = failures.lost + 1
    if lost > MOST_LOSSES:
        return Final(JobState.FAILED, f"lost {lost} times with the process that ran it")
    return Retry(Failures(failures.counted, lost), asked, why="lost with the process that ran it; retrying")


def _what_happened(ending: Ending) -> str:
    if ending.status is Status.TIMEOUT:
        is_walltime = ending.reason == WALLTIME_REASON
        return "its Slurm allocation reached its walltime" if is_walltime else "timed out"
    if ending.reason == "out-of-memory":
        return "out of memory"
    if ending.outputs_missing:
        return "output files are missing"
    if ending.status is Status.ERROR:
        return "not started"
    if ending.reason == "signal" and ending.exit_code is not None and ending.exit_code > _SIGNALLED:
        return f"killed by signal {ending.exit_code - _SIGNALLED}"
    return "failed" if ending.exit_code is None else f"exit code {ending.exit_code}"


def exit_code_for_rules(ending: Ending, execution: ExecutionSpec) -> int | None:
    """Returns the exit code for rules; `execution_config` defines it for jobs that joblens or the kernel
    killed."""
    if ending.status is Status.TIMEOUT or ending.reason == "timeout":
        return execution.timeout_exit_code
    if ending.reason == "out-of-memory":
        return execution.oom_exit_code
    return ending.exit_code


def matching_rule(job: PlannedJob, ending: Ending, execution: ExecutionSpec) -> RetryRule | None:
    """Returns the rule of the job's handler for this failure. Missing outputs have no exit code: only a
    rule for all codes matches."""
    if job.failure_handler is None:
        return None
    code = None if ending.outputs_missing else exit_code_for_rules(ending, execution)
    return job.failure_handler.rule_for(code)


def pause_s(rule: RetryRule, retry: int) -> float:
    """Returns the pause before the first, second, … retry."""
    if rule.backoff_s <= 0:
        return 0.0
    # The exponent is capped: a thousandth retry must not overflow.
    steps = min(retry - 1, 64)
    return float(min(rule.max_backoff_s, rule.backoff_s * rule.backoff_factor**steps))


def grown(asked: Requirements, rule: RetryRule, offer: RunCapacity) -> Requirements:
    """Returns the requirements multiplied by the factors of the rule; never more than the capacity, and
    never less than before, because the capacity may have shrunk since."""
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
    """State of a job before the replayed run begins. `state`: a final one, or RUNNING if an owner still
    runs it. None: see `again`; without that, it waits as if it had no attempt."""

    attempt: int
    requirements: Requirements
    failures: Failures = Failures()
    state: JobState | None = None
    again: Retry | None = None
    devices: tuple[str, ...] = ()
    why: str = ""
    is_cancelled: bool = False  # it runs, and was cancelled


class Pauses:
    def __init__(self) -> None:
        self._until_s: dict[int, float] = {}
        self._due: list[tuple[float, int]] = []  # heap over `_until_s`; still has removed entries

    def __contains__(self, index: int) -> bool:
        return index in self._until_s

    def __bool__(self) -> bool:
        return bool(self._until_s)

    def add(self, index: int, until_s: float) -> None:
        self._until_s[index] = until_s
        heappush(self._due, (until_s, index))

    def remove(self, index: int) -> bool:
        """Returns whether it was paused."""
        return self._until_s.pop(index, None) is not None

    def clear(self) -> None:
        self._until_s.clear()

    def next_s(self) -> float | None:
        while self._due and self._until_s.get(self._due[0][1]) != self._due[0][0]:
            heappop(self._due)
        return self._due[0][0] if self._due else None

    def over(self, now_s: float) -> Iterator[int]:
        """Removes and returns jobs whose pause is over."""
        while (due_s := self.next_s()) is not None and due_s <= now_s:
            index = heappop(self._due)[1]
            del self._until_s[index]
            yield index
