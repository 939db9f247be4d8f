from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from joblens.analysis.sizing.observations import (
    cpus_option,
    memory_option,
    more_memory_option,
    more_time_option,
    observation_of,
)
from joblens.analysis.sizing.rightsizing import Group, advise
from joblens.model.jobs.job import Record, Requirements, Status, Usage
from joblens.model.values.units import GIB, MIB, parse_duration, parse_size
from tests.builders.records import a_record


def asking(**requirements: float) -> dict[str, Any]:
    return {"job": {"requirements": Requirements(**requirements)}}  # type: ignore[arg-type]


def right_sized(record: Record, resource: str) -> float:
    """What `rightsize` and `seff` say after one run of it."""
    seen = observation_of(record, 1)
    assert seen is not None
    group = Group(name="it", current=record.job.requirements, observations=(seen,))
    return next(part.recommended for part in advise([group])[0].advice if part.resource == resource)


@given(st.integers(MIB, 1024 * GIB))
def test_a_finding_recommends_the_memory_that_right_sizing_recommends(peak: int) -> None:
    record = a_record(usage=Usage(memory_peak_bytes=peak), **asking(memory_bytes=4096 * GIB))
    size = parse_size(memory_option(peak).removeprefix("--memory "))
    assert size == right_sized(record, "memory")
    assert peak < size <= peak * 1.2 + 16 * MIB


@given(st.integers(MIB, 1024 * GIB), st.floats(0.9, 3.0))
def test_so_it_does_where_memory_was_not_enough(limit: int, over: float) -> None:
    peak = int(limit * over)
    record = a_record(
        usage=Usage(memory_peak_bytes=peak, oom_kills=1),
        status=Status.FAILED,
        reason="out-of-memory",
        **asking(memory_bytes=limit),
    )
    size = parse_size(more_memory_option(limit, peak).removeprefix("--memory "))
    assert size == right_sized(record, "memory")


@given(st.integers(1, 10**6))
def test_and_where_a_time_was_up(limit_s: int) -> None:
    record = a_record(
        status=Status.TIMEOUT, reason="timeout", duration_s=float(limit_s), **asking(timeout_s=float(limit_s))
    )
    seconds = parse_duration(more_time_option(limit_s, limit_s).removeprefix("--timeout "))
    assert seconds == right_sized(record, "runtime")
    assert seconds > limit_s


def test_cpus_are_whole_and_at_least_one() -> None:
    assert (cpus_option(0.2), cpus_option(2.0), cpus_option(2.2)) == ("--cpus 1", "--cpus 2", "--cpus 3")
