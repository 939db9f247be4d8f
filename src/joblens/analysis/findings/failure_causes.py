"""Cause of a job's failure, from measurements and records.
The exit code alone is evidence only if the job was not measured.
"""

import enum

from msgspec import Struct

from joblens.analysis.numbers.rates import is_memory_measured, is_out_of_memory
from joblens.model.jobs.job import Job, Outcome, Record, Status
from joblens.model.values.units import counted, format_bytes, format_duration

_KILLED = 137  # 128 + SIGKILL
_TIME_CODES = (124, 152)  # of timeout(1), and 128 + SIGXCPU
_NEAR_THE_LIMIT = 0.9
_SIGKILL = 9
_NOT_MEASURED = "it was not measured"


class Cause(enum.StrEnum):
    OUT_OF_MEMORY = "out-of-memory"
    TIMEOUT = "timeout"
    LOST = "lost"  # with the process or machine that ran it
    CANCELLED = "cancelled"  # by a user
    UNKNOWN = "unknown"


_CLUSTER_WORDS = {
    "OUT_OF_MEMORY": Cause.OUT_OF_MEMORY,
    "TIMEOUT": Cause.TIMEOUT,
    "DEADLINE": Cause.TIMEOUT,
}


class Diagnosis(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`evidence`: of the cause. Limits: enforced ones; None: none."""

    cause: Cause
    evidence: str
    is_guess: bool = False  # by the exit code alone
    exit_code: int | None = None
    memory_limit_bytes: int | None = None
    memory_peak_bytes: int | None = None
    time_limit_s: float | None = None
    duration_s: float | None = None


def diagnose(record: Record, *, outputs_missing: bool = False, cluster_word: str = "") -> Diagnosis:
    """Diagnoses an ended attempt without success. `cluster_word`: the cluster's reason for ending the job's
    allocation (OUT_OF_MEMORY); used if the job's agent was lost."""
    outcome = record.outcome
    if outcome is None:
        return Diagnosis(cause=Cause.LOST, evidence="its result was not recorded")
    memory_limit, time_limit = _limits(record.job)
    cause, evidence, is_guess = _cause(record, outcome, memory_limit, time_limit)
    if cause is Cause.LOST and cluster_word:
        cause = _CLUSTER_WORDS.get(cluster_word, cause)
        evidence = f"the cluster ended its allocation: {cluster_word}"
    if outputs_missing and outcome.status is Status.SUCCESS:
        cause, evidence, is_guess = Cause.UNKNOWN, "output files are missing", False
    return Diagnosis(
        cause=cause,
        evidence=evidence,
        is_guess=is_guess,
        exit_code=outcome.exit_code,
        memory_limit_bytes=memory_limit,
        memory_peak_bytes=outcome.usage.memory_peak_bytes,
        time_limit_s=time_limit,
        duration_s=outcome.duration_s,
    )


def _limits(job: Job) -> tuple[int | None, float | None]:
    if not job.enforce:
        return None, None
    return (job.requirements.memory_bytes if job.limits_resources else None), job.requirements.timeout_s


def _cause(
    record: Record, outcome: Outcome, memory_limit: int | None, time_limit: float | None
) -> tuple[Cause, str, bool]:
    if outcome.status is Status.LOST:
        return Cause.LOST, outcome.error or "lost with the process that ran it", False
    if outcome.status is Status.CANCELLED:
        return Cause.CANCELLED, "cancelled", False
    if outcome.status is Status.TIMEOUT or outcome.reason == "timeout":
        limit = "" if time_limit is None else f" after {format_duration(time_limit)}"
        return Cause.TIMEOUT, f"timed out{limit}", False
    if is_out_of_memory(outcome):
        return Cause.OUT_OF_MEMORY, _memory_evidence(outcome, memory_limit), False
    if _was_killed_above(outcome, memory_limit):
        peak = format_bytes(outcome.usage.memory_peak_bytes)
        return Cause.OUT_OF_MEMORY, f"killed at a peak of {peak}, above its limit", False
    if _is_measured(record, outcome):
        return Cause.UNKNOWN, _ending(outcome), False
    return _by_exit_code(record.job, outcome, time_limit)


def _memory_evidence(outcome: Outcome, limit: int | None) -> str:
    kills = outcome.usage.oom_kills or 0
    if not kills:
        return "out of memory: joblens killed it above its memory limit"
    who = counted(kills, "process")
    where = (
        "the machine or an enclosing limit ran out of memory"
        if limit is None
        else f"at {format_bytes(limit)}"
    )
    return f"out of memory: the kernel killed {who} of the job: {where}"


def _was_killed_above(outcome: Outcome, limit: int | None) -> bool:
    """Returns whether it was killed above its limit, by the measured peak, if the kernel has no counter."""
    peak = outcome.usage.memory_peak_bytes
    return (
        outcome.usage.oom_kills is None
        and outcome.signal == _SIGKILL
        and limit is not None
        and peak is not None
        and peak >= limit
    )


def _is_measured(record: Record, outcome: Outcome) -> bool:
    return outcome.reason in ("not-started", "limit") or is_memory_measured(record, outcome)


def _by_exit_code(job: Job, outcome: Outcome, time_limit: float | None) -> tuple[Cause, str, bool]:
    code = outcome.exit_code
    is_late = time_limit is not None and outcome.duration_s >= _NEAR_THE_LIMIT * time_limit
    if is_late and code in (_KILLED, *_TIME_CODES, job.timeout_exit_code):
        return Cause.TIMEOUT, f"exit code {code} near its time limit; {_NOT_MEASURED}", True
    if code in (_KILLED, job.oom_exit_code):
        return Cause.OUT_OF_MEMORY, f"exit code {code}; {_NOT_MEASURED}", True
    return Cause.UNKNOWN, _ending(outcome), False


def _ending(outcome: Outcome) -> str:
    if outcome.reason in ("not-started", "limit"):
        return (outcome.error or "it could not be started").split("\n", 1)[0]
    if outcome.signal is not None:
        return f"killed by signal {outcome.signal}"
    return "it failed" if outcome.exit_code is None else f"exit code {outcome.exit_code}"
