"""What a chart has to know of the plan besides its jobs."""

from joblens.app.reports.plot_sources import ends_of_pauses
from joblens.model.jobs.job import Status
from joblens.model.runs.plan import Plan, PlannedJob
from joblens.model.runs.run import JobResult, RecoveryRan, RunEvent
from joblens.model.runs.workflow_spec import FailureHandler, RetryRule

SECOND = 1_000_000
RULE = RetryRule(exit_codes=(1,), backoff_s=10.0, backoff_factor=2.0)
PLAN = Plan(
    name="w",
    jobs=(PlannedJob(name="a", command="x", failure_handler=FailureHandler(name="again", rules=(RULE,))),),
)


def ended(attempt: int, began_s: int, status: Status = Status.FAILED, code: int | None = 1) -> JobResult:
    return JobResult(0, attempt, attempt, f"u{attempt}", status, code, "exited", began_s * SECOND, 5.0)


def test_each_pause_begins_when_the_attempt_before_it_ends_and_is_longer() -> None:
    results = [ended(1, 100), ended(2, 115), ended(3, 140, Status.SUCCESS, 0)]
    assert ends_of_pauses(PLAN, results, []) == {(0, 2): 115 * SECOND, (0, 3): 140 * SECOND}


def test_a_loss_has_no_pause_and_makes_none_longer() -> None:
    results = [ended(1, 100, Status.LOST, None), ended(2, 200)]
    assert ends_of_pauses(PLAN, results, []) == {(0, 3): 215 * SECOND}


def test_a_pause_begins_after_the_recovery_script() -> None:
    recovered = RunEvent("e", "r", 160 * SECOND, RecoveryRan(0, 1, "u", Status.SUCCESS))
    assert ends_of_pauses(PLAN, [ended(1, 100)], [recovered]) == {(0, 2): 170 * SECOND}


def test_a_failure_no_rule_knows_has_no_pause() -> None:
    assert ends_of_pauses(PLAN, [ended(1, 100, code=2)], []) == {}
