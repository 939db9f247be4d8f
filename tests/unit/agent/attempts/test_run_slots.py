"""Reports of slots to a driver: what their thread reports, in order, on the loop."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, call

import pytest

from joblens.agent.attempts import hosts
from joblens.agent.attempts.hosts import RunSlots


class Loop:
    """Calls wait until the test runs them."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def call(self, function: Callable[[], None]) -> None:
        self.calls.append(function)

    def run(self) -> None:
        calls, self.calls = self.calls, []
        for function in calls:
            function()


class Slots:
    """RunSlots with a fake loop, and a slot loop that only takes jobs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop, self.reports = Loop(), Mock()
        context: Any = SimpleNamespace(loop=self.loop)
        plan: Any = Mock()
        self.slots = RunSlots(context, plan, self.reports, 15)
        monkeypatch.setattr(hosts, "early_outcome", lambda job, finished: f"{job.job.uuid} {finished}")
        monkeypatch.setattr(self.slots, "flush", lambda: None)

    def job(self, uuid: str, *, behind: bool = False) -> Any:
        attempt: Any = Mock(job=SimpleNamespace(uuid=uuid))
        self.slots.start(attempt, "shape", behind=behind)
        return SimpleNamespace(job=attempt.job)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Slots:
    return Slots(monkeypatch)


def test_a_job_that_began_and_ended_since_is_reported_as_ended_only(made: Slots) -> None:
    short, long = made.job("short"), made.job("long")
    made.slots.begun(short, Mock(started_at_us=1))
    made.slots.begun(long, Mock(started_at_us=2))
    made.slots.finished(short, "done")  # type: ignore[arg-type]
    made.slots.notify()
    made.slots.notify()
    assert made.reports.mock_calls == []
    assert len(made.loop.calls) == 1
    made.loop.run()
    assert made.reports.mock_calls == [call.began("long", 2), call.ended("short", "short done")]
    assert not made.slots.holds("short")
    assert made.slots.holds("long")


def test_records_are_reported_one_by_one_after_the_ends(made: Slots) -> None:
    job = made.job("a")
    made.slots.finished(job, "done")  # type: ignore[arg-type]
    made.slots.recorded(["record 1", "record 2"])  # type: ignore[list-item]
    made.slots.notify()
    made.loop.run()
    assert made.reports.mock_calls == [
        call.ended("a", "a done"),
        call.recorded("record 1"),
        call.recorded("record 2"),
    ]


def test_a_withdrawn_job_is_held_no_more(made: Slots) -> None:
    job = made.job("a")
    made.slots.withdrawn(job)
    made.slots.notify()
    made.loop.run()
    assert made.reports.mock_calls == [call.withdrawn("a")]
    assert not made.slots.holds("a")


def test_a_fault_of_the_slots_is_raised_on_the_loop(made: Slots) -> None:
    made.slots.failed(ValueError("broken"))
    with pytest.raises(ValueError, match="broken"):
        made.loop.run()
