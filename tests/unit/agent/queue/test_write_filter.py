"""Outcomes that a worker holds back, and jobs about which nothing is written."""

from collections.abc import Sequence

from msgspec.structs import replace

from joblens.agent.queue.write_filter import ClaimWriteFilter
from joblens.model.jobs.job import Status
from joblens.model.writes import JobEnded, Write
from tests.builders.writes import ended, queued, samples, started
from tests.unit.agent.fake_clock import FakeClock


def delaying(clock: FakeClock, delay_s: float = 0.25) -> ClaimWriteFilter:
    return ClaimWriteFilter(clock, delay_s)


def statuses(writes: Sequence[Write]) -> dict[str, Status]:
    return {write.uuid: write.outcome.status for write in writes if isinstance(write, JobEnded)}


def test_without_a_delay_everything_is_written_at_once() -> None:
    writes = ClaimWriteFilter(FakeClock())
    assert writes([started("a1"), ended("a1")]) == [started("a1"), ended("a1")]
    assert writes.next_due_s() is None


def test_an_outcome_is_written_after_the_delay() -> None:
    clock = FakeClock()
    writes = delaying(clock)
    assert writes([samples("b1", 0, 1), ended("a1")]) == [samples("b1", 0, 1)]
    assert writes.next_due_s() == clock.mono_ns() / 1e9 + 0.25
    clock.pass_s(0.2)
    assert writes([]) == []
    clock.pass_s(0.06)
    assert writes([]) == [ended("a1")]
    assert writes.next_due_s() is None


def test_a_discarded_outcome_is_never_written() -> None:
    writes = delaying(FakeClock())
    writes([ended("a1")])
    assert writes.discard_pending() == {"a1"}
    writes.open()
    assert writes([started("b1")]) == [started("b1")]


def test_frozen_outcomes_are_written_as_they_are_rewritten() -> None:
    clock = FakeClock()
    writes = delaying(clock)
    writes.freeze()
    assert writes([ended("a1"), ended("b1")]) == []
    clock.pass_s(10.0)
    assert writes([]) == []
    assert writes.next_due_s() is None
    assert writes.discard_pending(keep=["a1"]) == {"b1"}
    writes.release(lambda _uuid, outcome: replace(outcome, status=Status.CANCELLED))
    assert statuses(writes([])) == {"a1": Status.CANCELLED}


def test_writes_that_belong_to_an_outcome_stay_with_it() -> None:
    writes = delaying(FakeClock())
    assert writes([queued("a1"), started("b1"), ended("a1")]) == [started("b1")]
    late = samples("a1", 0, 1)
    assert writes([late]) == []
    writes.open()
    assert writes([started("c1")]) == [queued("a1"), ended("a1"), late, started("c1")]


def test_nothing_is_written_about_a_suppressed_job_until_it_is_allowed_again() -> None:
    writes = ClaimWriteFilter(FakeClock())
    writes.suppress("a1")
    assert writes([started("a1"), started("b1"), ended("a1")]) == [started("b1")]
    writes.allow("a1")
    assert writes([started("a1")]) == [started("a1")]


def test_an_outcome_that_is_held_back_can_still_be_suppressed() -> None:
    writes = delaying(FakeClock())
    writes([ended("a1"), ended("b1")])
    writes.suppress("a1")
    writes.open()
    assert writes([]) == [ended("b1")]
