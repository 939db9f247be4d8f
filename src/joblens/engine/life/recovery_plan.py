"""Recovery of a run, decided purely: which failed jobs run again, and with how much more memory or time."""

import math
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from joblens.analysis.findings.failure_causes import Cause, Diagnosis
from joblens.model.runs.plan import Lack
from joblens.model.runs.run import RaisedRequest
from joblens.model.values.units import MIB, format_bytes, format_duration

MEMORY_MULTIPLIER = 1.5
RUNTIME_MULTIPLIER = 1.4
MOST_MULTIPLIED = 1000.0


class RecoveryChoice(Struct, frozen=True, kw_only=True):
    """A multiplier of None skips the jobs of that cause."""

    memory_multiplier: float | None = MEMORY_MULTIPLIER
    runtime_multiplier: float | None = RUNTIME_MULTIPLIER
    retry_unknown: bool = False


class Failure(Struct, frozen=True):
    index: int
    name: str
    attempt: int  # the last one in this run; 0: its outcome comes from an earlier run
    diagnosis: Diagnosis
    job_id: int | None = None  # number of its record


class JobRecovery(Struct, frozen=True, kw_only=True):
    failure: Failure
    is_retried: bool
    memory_bytes: int | None = None  # of the next attempt; None: unchanged
    timeout_s: float | None = None
    note: str = ""  # why it is skipped, or gets less than the multiplier asks for


def plan_recovery(failures: Sequence[Failure], choice: RecoveryChoice) -> tuple[JobRecovery, ...]:
    return tuple(_recovery(one, choice) for one in failures)


def _recovery(failure: Failure, choice: RecoveryChoice) -> JobRecovery:
    cause = failure.diagnosis.cause
    if cause is Cause.OUT_OF_MEMORY:
        return _with_memory(failure, choice)
    if cause is Cause.TIMEOUT:
        return _with_time(failure, choice)
    if cause is Cause.LOST:
        return JobRecovery(failure=failure, is_retried=True)
    if cause is Cause.CANCELLED:
        return _skipped(failure, "someone cancelled it; joblens jobs reset-status lets it run again")
    if choice.retry_unknown:
        return JobRecovery(failure=failure, is_retried=True)
    return _skipped(failure, "unknown cause; --retry-unknown runs it again")


def _with_memory(failure: Failure, choice: RecoveryChoice) -> JobRecovery:
    if choice.memory_multiplier is None:
        return _skipped(failure, "skipped")
    limit = failure.diagnosis.memory_limit_bytes
    if limit is None:
        return _without_limit(failure, choice, "it has no memory limit to raise; run fewer jobs at once")
    # The limit is multiplied, not the peak: the job was killed before it reached what it needs.
    wanted = max(limit * choice.memory_multiplier, failure.diagnosis.memory_peak_bytes or 0)
    return JobRecovery(failure=failure, is_retried=True, memory_bytes=math.ceil(wanted / MIB) * MIB)


def _with_time(failure: Failure, choice: RecoveryChoice) -> JobRecovery:
    if choice.runtime_multiplier is None:
        return _skipped(failure, "skipped")
    limit = failure.diagnosis.time_limit_s
    if limit is None:
        return _without_limit(failure, choice, "it has no time limit to raise")
    wanted = math.ceil(round(limit * choice.runtime_multiplier, 6))
    return JobRecovery(failure=failure, is_retried=True, timeout_s=float(wanted))


def _without_limit(failure: Failure, choice: RecoveryChoice, why: str) -> JobRecovery:
    if choice.retry_unknown:
        return JobRecovery(failure=failure, is_retried=True)
    return _skipped(failure, f"{why}; --retry-unknown runs it again")


def _skipped(failure: Failure, why: str) -> JobRecovery:
    return JobRecovery(failure=failure, is_retried=False, note=why)


def capped(jobs: Sequence[JobRecovery], lacks: Sequence[Lack]) -> tuple[JobRecovery, ...]:
    """Limits the amounts to what is available; skips a job that already had all of it."""
    have = {(one.name, one.what): one.have for one in lacks}
    return tuple(_capped(one, have) for one in jobs)


def _capped(one: JobRecovery, have: dict[tuple[str, str], float]) -> JobRecovery:
    name, before = one.failure.name, one.failure.diagnosis
    memory = have.get((name, "memory")) if one.memory_bytes is not None else None
    time_s = have.get((name, "time")) if one.timeout_s is not None else None
    if memory is not None:
        most = int(memory) // MIB * MIB
        if most <= (before.memory_limit_bytes or 0):
            return _skipped(one.failure, f"it already has all available memory, {format_bytes(memory)}")
        return replace(one, memory_bytes=most, note=f"capped at {format_bytes(most)}, the most available")
    if time_s is not None:
        if time_s <= (before.time_limit_s or 0):
            return _skipped(one.failure, f"it already has all available time, {format_duration(time_s)}")
        return replace(one, timeout_s=time_s, note=f"capped at {format_duration(time_s)}, the most available")
    return one


def requests_of(jobs: Sequence[JobRecovery]) -> tuple[RaisedRequest, ...]:
    """Returns the requests to write to the run."""
    return tuple(
        RaisedRequest(
            one.failure.index,
            one.failure.attempt,
            memory_bytes=one.memory_bytes,
            timeout_s=one.timeout_s,
            why=one.failure.diagnosis.evidence,
        )
        for one in jobs
        if one.is_retried and (one.memory_bytes is not None or one.timeout_s is not None)
    )
