"""Handlers that a smaller first try counts on."""

from joblens.analysis.sizing.rightsizing import Advice, Group, GroupAdvice
from joblens.app.reports.rightsize_files import retries_for
from joblens.model.jobs.job import Requirements
from joblens.model.runs.workflow_spec import FailureHandler, JobSpec, RetryRule, WorkflowSpec


def test_the_rule_that_is_raised_is_the_one_that_decides() -> None:
    rules = (RetryRule(match_all_exit_codes=True), RetryRule(exit_codes=(137,)))
    handlers = (FailureHandler(name="h", rules=rules),)
    spec = WorkflowSpec(
        name="w", jobs=(JobSpec(name="a", command="x", failure_handler="h"),), failure_handlers=handlers
    )
    part = Advice(
        resource="memory",
        current=400.0,
        recommended=100.0,
        current_text="400",
        recommended_text="100",
        reason="",
        retry_at=300,
    )
    group = Group(name="a", current=Requirements(), observations=(), is_named=False)
    advice = GroupAdvice(group=group, jobs=1, runs=1, confidence="high", advice=(part,))
    value = {"jobs": [{"name": "a", "failure_handler": "h"}]}
    assert retries_for(spec, value, [advice]).changes == {
        ("failure_handlers", 0, "rules", 1, "memory_factor"): 3.0
    }
