"""Requests raised for one run, in its plan and in runs that repeat it."""

from joblens.model.jobs.job import Requirements
from joblens.model.runs.run import RaisedRequest
from joblens.plan.workflows.plan_document import from_the_first_attempt, still_valid, with_raised
from tests.unit.engine.plans import GIB, job, plan_of

PLAN = plan_of(job("a", memory_bytes=GIB, timeout_s=60.0), job("b", memory_bytes=GIB))


def test_the_newest_request_of_each_kind_holds() -> None:
    raised = (
        RaisedRequest(0, 1, memory_bytes=2 * GIB),
        RaisedRequest(0, 2, timeout_s=90.0),
        RaisedRequest(0, 3, memory_bytes=3 * GIB),
    )
    changed = with_raised(PLAN, raised)
    assert changed.jobs[0].requirements == Requirements(memory_bytes=3 * GIB, timeout_s=90.0)
    assert changed.jobs[1] is PLAN.jobs[1]
    assert from_the_first_attempt(raised) == (RaisedRequest(0, 0, memory_bytes=3 * GIB, timeout_s=90.0),)


def test_a_plan_without_raised_requests_is_the_same_object() -> None:
    assert with_raised(PLAN, ()) is PLAN


def test_what_the_file_changed_since_is_what_the_file_says() -> None:
    raised = (RaisedRequest(0, 1, memory_bytes=2 * GIB), RaisedRequest(1, 1, memory_bytes=2 * GIB))
    now = plan_of(job("a", memory_bytes=4 * GIB, timeout_s=60.0), job("b", memory_bytes=GIB))
    assert [one.index for one in still_valid(raised, PLAN, now)] == [1]
    renamed = plan_of(job("x", memory_bytes=GIB, timeout_s=60.0))
    assert still_valid(raised, PLAN, renamed) == ()
