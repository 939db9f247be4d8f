"""Why a job failed, from what was recorded of it."""

from typing import Any

import pytest

from joblens.analysis.findings.failure_causes import Cause, diagnose
from joblens.model.jobs.job import Attempt, Job, Outcome, Owner, Record, Requirements, Status, Usage

MIB = 1 << 20
LIMITS = Requirements(memory_bytes=100 * MIB, timeout_s=60.0)
OWNER = Owner("host", 1, 2, "boot")


def record(
    status: Status = Status.FAILED,
    *,
    limits: Requirements = LIMITS,
    accounting: str = "cgroup-v2",
    duration_s: float = 5.0,
    usage: Usage | None = None,
    job: dict[str, Any] | None = None,
    **how: Any,
) -> Record:
    measured = Usage(memory_peak_bytes=40 * MIB, oom_kills=0)
    outcome = Outcome(status=status, ended_at_us=0, duration_s=duration_s, usage=usage or measured, **how)
    made = Job(uuid="u", argv=("x",), created_at_us=0, requirements=limits, **(job or {}))
    attempt = Attempt(started_at_us=0, owner=OWNER, accounting=accounting)
    return Record(status=status, job=made, attempt=attempt, outcome=outcome)


KILLED = Usage(memory_peak_bytes=100 * MIB, oom_kills=1)
NOTHING = Usage()


@pytest.mark.parametrize(
    ("found", "cause", "is_guess"),
    [
        # The verdict of joblens and the kernel's counter.
        (record(exit_code=137, reason="out-of-memory", usage=KILLED), Cause.OUT_OF_MEMORY, False),
        (record(exit_code=1, reason="exited", usage=KILLED), Cause.OUT_OF_MEMORY, False),
        (record(Status.TIMEOUT, exit_code=124, reason="timeout"), Cause.TIMEOUT, False),
        (record(Status.TIMEOUT, exit_code=124, reason="timeout", usage=KILLED), Cause.TIMEOUT, False),
        (record(Status.LOST, reason="lost"), Cause.LOST, False),
        (record(Status.CANCELLED, reason="cancelled"), Cause.CANCELLED, False),
        # It was measured, so its exit code is no evidence.
        (record(exit_code=137, signal=9, reason="signal"), Cause.UNKNOWN, False),
        (record(exit_code=152, reason="exited", duration_s=59.0), Cause.UNKNOWN, False),
        (record(exit_code=3, reason="exited"), Cause.UNKNOWN, False),
        (record(exit_code=1, reason="limit"), Cause.UNKNOWN, False),
        (record(Status.ERROR, exit_code=127, reason="not-started"), Cause.UNKNOWN, False),
        # Where the kernel does not count its kills, a peak above the limit is.
        (
            record(
                exit_code=137,
                signal=9,
                reason="signal",
                accounting="process-tree",
                usage=Usage(memory_peak_bytes=120 * MIB),
            ),
            Cause.OUT_OF_MEMORY,
            False,
        ),
        (
            record(
                exit_code=137,
                signal=9,
                reason="signal",
                accounting="process-tree",
                usage=Usage(memory_peak_bytes=50 * MIB),
            ),
            Cause.UNKNOWN,
            False,
        ),
        # Nothing was measured: the exit code is all there is.
        (record(exit_code=137, accounting="", usage=NOTHING), Cause.OUT_OF_MEMORY, True),
        (record(exit_code=137, accounting="", usage=NOTHING, duration_s=58.0), Cause.TIMEOUT, True),
        (record(exit_code=152, accounting="sacct", usage=NOTHING, duration_s=58.0), Cause.TIMEOUT, True),
        (record(exit_code=124, accounting="", usage=NOTHING, duration_s=58.0), Cause.TIMEOUT, True),
        (record(exit_code=124, accounting="", usage=NOTHING, duration_s=5.0), Cause.UNKNOWN, False),
        (record(exit_code=1, accounting="", usage=NOTHING), Cause.UNKNOWN, False),
    ],
)
def test_the_cause_is_what_was_recorded(found: Record, cause: Cause, is_guess: bool) -> None:
    diagnosis = diagnose(found)
    assert (diagnosis.cause, diagnosis.is_guess) == (cause, is_guess)
    assert diagnosis.evidence


@pytest.mark.parametrize(
    ("word", "cause"),
    [
        ("OUT_OF_MEMORY", Cause.OUT_OF_MEMORY),
        ("TIMEOUT", Cause.TIMEOUT),
        ("DEADLINE", Cause.TIMEOUT),
        ("NODE_FAIL", Cause.LOST),
        ("", Cause.LOST),
    ],
)
def test_a_lost_job_whose_allocation_the_cluster_ended_has_that_cause(word: str, cause: Cause) -> None:
    """Its agent was killed with it, so only the cluster can tell."""
    diagnosis = diagnose(record(Status.LOST, reason="lost"), cluster_word=word)
    assert diagnosis.cause is cause
    assert word in diagnosis.evidence


def test_the_word_of_a_cluster_does_not_replace_what_was_recorded() -> None:
    assert diagnose(record(exit_code=3, reason="exited"), cluster_word="TIMEOUT").cause is Cause.UNKNOWN


def test_a_guess_says_that_it_is_one() -> None:
    evidence = diagnose(record(exit_code=137, accounting="", usage=NOTHING)).evidence
    assert "exit code 137" in evidence
    assert "not measured" in evidence


def test_missing_outputs_have_no_known_cause() -> None:
    diagnosis = diagnose(record(Status.SUCCESS, exit_code=0, reason="exited"), outputs_missing=True)
    assert diagnosis.cause is Cause.UNKNOWN
    assert diagnosis.evidence == "output files are missing"


def test_limits_that_were_not_enforced_are_none() -> None:
    killed = record(reason="out-of-memory", exit_code=137, usage=KILLED, job={"enforce": False})
    diagnosis = diagnose(killed)
    assert diagnosis.memory_limit_bytes is None
    assert diagnosis.time_limit_s is None
    only_time = record(reason="out-of-memory", exit_code=137, usage=KILLED, job={"limits_resources": False})
    assert diagnose(only_time).memory_limit_bytes is None
    assert diagnose(only_time).time_limit_s == 60.0


def test_numbers_come_along() -> None:
    diagnosis = diagnose(record(exit_code=137, reason="out-of-memory", usage=KILLED))
    assert diagnosis.memory_limit_bytes == diagnosis.memory_peak_bytes == 100 * MIB
    assert (diagnosis.exit_code, diagnosis.duration_s) == (137, 5.0)
