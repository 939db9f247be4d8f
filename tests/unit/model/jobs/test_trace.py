"""Trace context: the same ids everywhere, below whoever called."""

import pytest

from joblens.model.jobs.job import RunLink
from joblens.model.jobs.trace import (
    parse_traceparent,
    span_id_of,
    trace_of_job,
    trace_of_run,
    trace_variables,
)
from tests.builders.records import UUID, a_job

CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
RUN = "0f1e2d3c-4b5a-4678-9abc-def012345678"


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "garbage",
        "00-" + "0" * 32 + "-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-" + "0" * 16 + "-01",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        CALLER.upper(),
        CALLER[:-1],
    ],
)
def test_an_invalid_header_counts_as_none(text: str | None) -> None:
    assert parse_traceparent(text) is None


def test_a_valid_header_comes_back() -> None:
    parsed = parse_traceparent(CALLER)
    assert parsed is not None
    assert parsed.header == CALLER


def test_a_job_without_caller_starts_a_trace_named_like_the_job() -> None:
    context = trace_of_job(a_job())
    assert context.own.trace_id == UUID.replace("-", "")
    assert not context.parent_span_id
    assert trace_variables(a_job()) == {"TRACEPARENT": f"00-{UUID.replace('-', '')}-{span_id_of(UUID)}-01"}


def test_attempts_of_a_run_are_below_the_span_of_the_run_wherever_they_are_computed() -> None:
    caller = parse_traceparent(CALLER)
    run = trace_of_run(RUN, caller)
    job = trace_of_job(a_job(run=RunLink(RUN, 0), env={"TRACEPARENT": CALLER}))
    assert job.own.trace_id == run.own.trace_id == CALLER.split("-")[1]
    assert job.parent_span_id == run.own.span_id
    assert run.parent_span_id == CALLER.split("-")[2]


def test_a_single_command_on_a_cluster_is_no_task_of_a_run() -> None:
    context = trace_of_job(a_job(run=RunLink(RUN, 0, is_command=True)))
    assert context.own.trace_id == UUID.replace("-", "")


def test_an_id_that_is_no_uuid_still_has_a_valid_trace_id() -> None:
    assert parse_traceparent(trace_of_job(a_job(uuid="imported-7")).own.header) is not None
