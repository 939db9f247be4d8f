"""Recovery of failed jobs: more memory, more time, another try, or none."""

from typing import Any

import pytest

from joblens.analysis.findings.failure_causes import Cause, Diagnosis
from joblens.engine.life.recovery_plan import (
    Failure,
    RecoveryChoice,
    capped,
    plan_recovery,
    requests_of,
)
from joblens.model.runs.plan import Lack
from joblens.model.runs.run import RaisedRequest

MIB = 1 << 20
USUAL = RecoveryChoice()


def failure(cause: Cause, index: int = 0, **numbers: Any) -> Failure:
    numbers.setdefault("memory_limit_bytes", 100 * MIB)
    numbers.setdefault("time_limit_s", 60.0)
    return Failure(index, f"job{index}", 2, Diagnosis(cause=cause, evidence="why", **numbers))


def only(one: Failure, choice: RecoveryChoice = USUAL) -> Any:
    (planned,) = plan_recovery([one], choice)
    return planned


def test_a_job_out_of_memory_gets_its_limit_times_the_multiplier() -> None:
    planned = only(failure(Cause.OUT_OF_MEMORY, memory_peak_bytes=100 * MIB))
    assert (planned.is_retried, planned.memory_bytes, planned.timeout_s) == (True, 150 * MIB, None)


def test_a_job_that_was_seen_above_its_limit_gets_no_less_than_that() -> None:
    """Where joblens ends it at a sample, it may have grown far beyond its limit."""
    assert only(failure(Cause.OUT_OF_MEMORY, memory_peak_bytes=400 * MIB)).memory_bytes == 400 * MIB


def test_a_job_out_of_time_gets_whole_seconds_more() -> None:
    planned = only(failure(Cause.TIMEOUT, time_limit_s=1.0))
    assert (planned.is_retried, planned.memory_bytes, planned.timeout_s) == (True, None, 2.0)
    assert only(failure(Cause.TIMEOUT, time_limit_s=60.0)).timeout_s == 84.0


@pytest.mark.parametrize("cause", [Cause.OUT_OF_MEMORY, Cause.TIMEOUT])
def test_without_a_limit_there_is_nothing_to_raise(cause: Cause) -> None:
    planned = only(failure(cause, memory_limit_bytes=None, time_limit_s=None))
    assert not planned.is_retried
    assert planned.note
    tried = only(
        failure(cause, memory_limit_bytes=None, time_limit_s=None), RecoveryChoice(retry_unknown=True)
    )
    assert (tried.is_retried, tried.memory_bytes, tried.timeout_s) == (True, None, None)


def test_unknown_failures_are_skipped_unless_asked_for() -> None:
    planned = only(failure(Cause.UNKNOWN))
    assert not planned.is_retried
    assert "--retry-unknown" in planned.note
    assert only(failure(Cause.UNKNOWN), RecoveryChoice(retry_unknown=True)).is_retried


def test_lost_jobs_run_again_and_cancelled_ones_do_not() -> None:
    assert only(failure(Cause.LOST)).is_retried
    assert not only(failure(Cause.CANCELLED), RecoveryChoice(retry_unknown=True)).is_retried


def test_a_category_can_be_skipped() -> None:
    choice = RecoveryChoice(memory_multiplier=None, runtime_multiplier=None)
    assert not only(failure(Cause.OUT_OF_MEMORY), choice).is_retried
    assert not only(failure(Cause.TIMEOUT), choice).is_retried


def test_requests_name_the_attempt_that_failed_and_why() -> None:
    planned = plan_recovery([failure(Cause.OUT_OF_MEMORY, 3), failure(Cause.LOST, 4)], USUAL)
    assert requests_of(planned) == (RaisedRequest(3, 2, memory_bytes=150 * MIB, why="why"),)


def test_a_request_that_does_not_fit_is_capped() -> None:
    planned = plan_recovery([failure(Cause.OUT_OF_MEMORY), failure(Cause.TIMEOUT, 1)], USUAL)
    fitted = capped(planned, [Lack("job0", "memory", 150 * MIB, 120 * MIB), Lack("job1", "time", 84.0, 70.0)])
    assert [(one.is_retried, one.memory_bytes, one.timeout_s) for one in fitted] == [
        (True, 120 * MIB, None),
        (True, None, 70.0),
    ]
    assert all("the most available" in one.note for one in fitted)


def test_a_job_that_has_everything_already_is_not_tried_again() -> None:
    planned = plan_recovery([failure(Cause.OUT_OF_MEMORY)], USUAL)
    (fitted,) = capped(planned, [Lack("job0", "memory", 150 * MIB, 100 * MIB)])
    assert (fitted.is_retried, fitted.memory_bytes) == (False, None)
    assert "already" in fitted.note


def test_what_lacks_for_another_reason_is_left_alone() -> None:
    planned = plan_recovery([failure(Cause.OUT_OF_MEMORY)], USUAL)
    assert capped(planned, [Lack("other", "memory", 1.0, 0.0), Lack("job0", "gpus", 1.0, 0.0)]) == planned
