"""Failure handlers, losses, and what the next attempt gets."""

from typing import Any

import pytest

from joblens.engine.schedule.capacity import RunCapacity
from joblens.engine.schedule.events import (
    CancelWanted,
    Command,
    CommandEnded,
    RunIsOver,
    RunRecovery,
    StartAttempt,
    StopMode,
    StopWanted,
    Tick,
)
from joblens.engine.schedule.retries import Ending, exit_code_for_rules, matching_rule, pause_s
from joblens.model.jobs.job import Requirements, Status
from joblens.model.runs.run import JobState
from joblens.model.runs.workflow_spec import ExecutionSpec, FailureHandler, RetryRule
from tests.unit.engine.plans import GIB, Talk, handler, job, plan_of, starts


def retried(**rule: Any) -> Talk:
    asked = {"memory_bytes": GIB, "timeout_s": 60.0}
    return Talk(plan_of(job("a", failure_handler=handler(**rule), **asked)))


def asked_for(commands: list[Command]) -> list[tuple[int, Requirements]]:
    return [(start.attempt, start.requirements) for start in commands if isinstance(start, StartAttempt)]


def test_a_rule_for_the_exit_code_brings_another_attempt() -> None:
    talk = retried(exit_codes=(3,), max_retries=2)
    assert starts(talk.ended(0, 3)) == [0]
    assert talk.schedule.attempt_of(0) == 2
    assert starts(talk.ended(0, 3)) == [0]
    assert starts(talk.ended(0, 3)) == []
    assert talk.states == [JobState.FAILED]
    assert talk.schedule.why(0) == "exit code 3 after 2 retries"
    assert talk.is_over


def test_another_exit_code_is_no_reason_to_try_again() -> None:
    talk = retried(exit_codes=(3,))
    assert starts(talk.ended(0, 4)) == []
    assert talk.states == [JobState.FAILED]


def test_a_retry_that_succeeds_completes_the_job() -> None:
    talk = retried(match_all_exit_codes=True)
    talk.ended(0, 9)
    talk.ended(0)
    assert talk.states == [JobState.COMPLETED]


def retries_with(*rules: RetryRule) -> Talk:
    return Talk(plan_of(job("a", failure_handler=FailureHandler(name="h", rules=rules))))


NEVER_AFTER_3 = RetryRule(exit_codes=(3,), max_retries=0)
ALWAYS = RetryRule(match_all_exit_codes=True, max_retries=5)


@pytest.mark.parametrize("rules", [(NEVER_AFTER_3, ALWAYS), (ALWAYS, NEVER_AFTER_3)])
def test_a_rule_for_the_exit_code_comes_before_one_for_all_of_them(rules: tuple[RetryRule, ...]) -> None:
    talk = retries_with(*rules)
    talk.ended(0, 3)
    assert talk.states == [JobState.FAILED]
    talk = retries_with(*rules)
    assert starts(talk.ended(0, 4)) == [0]


def test_the_first_of_two_rules_for_one_exit_code_counts() -> None:
    talk = retries_with(RetryRule(exit_codes=(3, 4), max_retries=1), NEVER_AFTER_3)
    assert starts(talk.ended(0, 3)) == [0]
    assert starts(talk.ended(0, 3)) == []


def test_exit_codes_beside_match_all_still_come_first() -> None:
    both = RetryRule(exit_codes=(3,), match_all_exit_codes=True, max_retries=1)
    talk = retries_with(RetryRule(match_all_exit_codes=True, max_retries=0), both)
    assert starts(talk.ended(0, 3)) == [0]
    talk = retries_with(RetryRule(match_all_exit_codes=True, max_retries=0), both)
    assert starts(talk.ended(0, 4)) == []


def test_exhausted_retries_are_a_failure_also_where_people_decide() -> None:
    plan = plan_of(job("a", failure_handler=handler(exit_codes=(3,), max_retries=0)), use_pending_failed=True)
    talk = Talk(plan)
    talk.ended(0, 3)
    assert talk.states == [JobState.FAILED]


def test_between_attempts_a_job_is_ready_and_a_wake_is_due() -> None:
    talk = retried(match_all_exit_codes=True, backoff_s=10.0)
    assert starts(talk.ended(0, 1)) == []
    assert talk.states == [JobState.READY]
    assert talk.schedule.why(0) == "waits before its next attempt"
    assert talk.schedule.next_wake_s() == talk.now_s + 10.0
    assert starts(talk.say(Tick(), after_s=9.0)) == []
    assert starts(talk.say(Tick(), after_s=1.0)) == [0]
    assert talk.schedule.next_wake_s() is None


@pytest.mark.parametrize(("retry", "expected_s"), [(1, 10.0), (2, 30.0), (3, 60.0), (5000, 60.0)])
def test_the_pause_grows_up_to_its_maximum(retry: int, expected_s: float) -> None:
    rule = RetryRule(backoff_s=10.0, backoff_factor=3.0, max_backoff_s=60.0)
    assert pause_s(rule, retry) == expected_s


def test_the_recovery_script_comes_first_and_the_pause_after_it() -> None:
    talk = retried(match_all_exit_codes=True, recovery_script="fix", backoff_s=5.0)
    result = talk.ended(0, 1)
    assert RunRecovery(0, 1, "fix") in result
    assert starts(result) == []
    assert "its recovery script runs" in talk.schedule.why(0)
    assert starts(talk.say(CommandEnded(Status.SUCCESS, index=0))) == []
    assert starts(talk.say(Tick(), after_s=5.0)) == [0]


def test_a_recovery_script_that_fails_ends_the_job() -> None:
    talk = retried(match_all_exit_codes=True, recovery_script="fix")
    talk.ended(0, 1)
    talk.say(CommandEnded(Status.FAILED, index=0))
    assert talk.states == [JobState.FAILED]
    assert talk.is_over
    assert "the recovery script failed" in talk.schedule.why(0)


def test_memory_and_runtime_grow_with_each_attempt_but_not_beyond_the_offer() -> None:
    rule = {"match_all_exit_codes": True, "memory_factor": 3.0, "runtime_factor": 2.0}
    talk = retried(**rule)
    talk.ended(0, 1)
    talk.ended(0, 1)
    assert asked_for(talk.commands) == [
        (1, Requirements(memory_bytes=GIB, timeout_s=60.0)),
        (2, Requirements(memory_bytes=3 * GIB, timeout_s=120.0)),
        (3, Requirements(memory_bytes=8 * GIB, timeout_s=240.0)),
    ]


def test_a_grown_runtime_stays_within_the_time_offered() -> None:
    offer = RunCapacity(cpus=1, memory_bytes=GIB, time_s=100.0)
    rule = handler(match_all_exit_codes=True, runtime_factor=5.0)
    talk = Talk(plan_of(job("a", timeout_s=60.0, failure_handler=rule)), offer)
    talk.ended(0, 1, after_s=0.0)
    assert asked_for(talk.commands)[-1] == (2, Requirements(timeout_s=100.0))


def test_grown_memory_is_what_the_next_attempt_waits_for() -> None:
    rule = handler(match_all_exit_codes=True, memory_factor=4.0)
    talk = Talk(plan_of(job("a", memory_bytes=GIB, failure_handler=rule), job("b", memory_bytes=6 * GIB)))
    assert starts(talk.ended(0, 1)) == []
    assert "4.0 GiB of memory (2.0 GiB of 8.0 GiB free)" in talk.schedule.why(0)
    assert starts(talk.ended(1)) == [0]


def test_what_nobody_wrote_does_not_grow() -> None:
    rule = handler(match_all_exit_codes=True, memory_factor=2.0, runtime_factor=2.0)
    talk = Talk(plan_of(job("a", failure_handler=rule)))
    talk.ended(0, 1)
    assert asked_for(talk.commands)[-1] == (2, Requirements())


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        (Ending(Status.TIMEOUT, 124, "timeout"), 152),
        (Ending(Status.FAILED, None, "out-of-memory"), 137),
        (Ending(Status.FAILED, 3, "exited"), 3),
        (Ending(Status.ERROR, 127, "not-started"), 127),
    ],
)
def test_rules_see_the_codes_of_the_execution_config(ending: Ending, code: int) -> None:
    assert exit_code_for_rules(ending, ExecutionSpec()) == code


def test_own_codes_for_out_of_memory_and_time_out_are_honoured() -> None:
    execution = ExecutionSpec(oom_exit_code=77, timeout_exit_code=78)
    planned = job("a", failure_handler=handler(exit_codes=(77, 78)))
    for ending in (Ending(Status.FAILED, 137, "out-of-memory"), Ending(Status.TIMEOUT, None, "timeout")):
        assert matching_rule(planned, ending, execution) is not None
    assert matching_rule(planned, Ending(Status.FAILED, 137, "exited"), execution) is None


def test_a_time_out_with_a_rule_is_tried_again_and_terminated_at_last() -> None:
    talk = retried(exit_codes=(152,), max_retries=1)
    assert starts(talk.ended(0, 124, status=Status.TIMEOUT, reason="timeout")) == [0]
    talk.ended(0, 124, status=Status.TIMEOUT, reason="timeout")
    assert talk.states == [JobState.TERMINATED]


def test_missing_outputs_are_only_for_rules_that_match_all() -> None:
    talk = retried(exit_codes=(0,))
    talk.ended(0, outputs_missing=True)
    assert talk.states == [JobState.FAILED]
    talk = retried(match_all_exit_codes=True)
    assert starts(talk.ended(0, outputs_missing=True)) == [0]


def test_lost_attempts_do_not_count_but_not_for_ever() -> None:
    talk = retried(match_all_exit_codes=True, max_retries=1)
    for _ in range(3):
        assert starts(talk.ended(0, status=Status.LOST, reason="lost")) == [0]
    assert starts(talk.ended(0, 1)) == [0]
    assert talk.schedule.attempt_of(0) == 5
    talk.ended(0, status=Status.LOST, reason="lost")
    assert talk.states == [JobState.FAILED]


def test_while_draining_a_retry_waits_for_the_run_to_go_on() -> None:
    talk = retried(match_all_exit_codes=True, recovery_script="fix")
    talk.say(StopWanted(StopMode.DRAIN))
    result = talk.ended(0, 1)
    assert not any(isinstance(command, RunRecovery | StartAttempt) for command in result)
    assert talk.states == [JobState.READY]
    assert talk.is_over


def test_while_killing_nothing_is_tried_again() -> None:
    talk = retried(match_all_exit_codes=True)
    talk.say(StopWanted(StopMode.KILL))
    talk.ended(0, 1)
    assert talk.states == [JobState.FAILED]
    assert talk.is_over


def test_killing_ends_the_wait_for_the_next_attempt() -> None:
    talk = retried(match_all_exit_codes=True, backoff_s=100.0)
    talk.ended(0, 1)
    talk.say(StopWanted(StopMode.KILL))
    assert talk.states == [JobState.FAILED]
    assert talk.is_over


def test_cancelling_ends_the_wait_for_the_next_attempt() -> None:
    talk = retried(match_all_exit_codes=True, backoff_s=100.0)
    talk.ended(0, 1)
    talk.say(CancelWanted(0))
    assert talk.states == [JobState.TERMINATED]
    assert talk.is_over
    assert talk.schedule.next_wake_s() is None


def test_cancelling_while_the_recovery_script_runs_ends_the_job_and_waits_for_the_script() -> None:
    talk = retried(match_all_exit_codes=True, recovery_script="fix")
    talk.ended(0, 1)
    talk.say(CancelWanted(0))
    assert talk.states == [JobState.TERMINATED]
    assert RunIsOver() in talk.say(CommandEnded(Status.SUCCESS, index=0))
    assert talk.is_over
    assert starts(talk.commands) == [0]


def test_a_cancelled_job_is_not_tried_again() -> None:
    talk = retried(match_all_exit_codes=True)
    talk.say(CancelWanted(0))
    talk.ended(0, 143)
    assert talk.states == [JobState.TERMINATED]
