"""Slot loop: which slot gets which job, and what waits, is taken back or withdrawn. Slots are fakes."""

import os
from collections import Counter, deque
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from joblens.agent.slots import loop as module
from joblens.agent.slots.loop import SlotListener, SlotLoop, SlotPlan
from joblens.agent.slots.slot import Finished, SlotJob
from joblens.model.jobs.job import Job
from tests.unit.agent.fake_clock import FakeClock


class FakeSlot:
    """Runs what it is sent until the test ends it."""

    def __init__(self, clock: FakeClock) -> None:
        self.socket = os.eventfd(0)
        self.current: SlotJob | None = None
        self.is_spent = False
        self.stopped: list[bool] = []
        self.running_since_ns = 0
        self._clock = clock
        self._ahead: deque[SlotJob] = deque()

    @property
    def free_ahead(self) -> int:
        return 4 - len(self._ahead)

    @property
    def jobs_ahead(self) -> int:
        return len(self._ahead)

    def send(self, jobs: list[SlotJob]) -> None:
        self._ahead.extend(jobs if self.current is not None else jobs[1:])

    def begin(self, slot_job: SlotJob, _host: object, _started_ns: int | None = None) -> Any:
        self.current, self.running_since_ns = slot_job, self._clock.mono_ns()
        return SimpleNamespace(started_at_us=0)

    def receive(self) -> tuple[Any, ...]:
        return ("done",)

    def finish(self, _message: object, _host: object) -> tuple[SlotJob, Finished]:
        assert self.current is not None
        ended, self.current = self.current, None
        return ended, Finished(is_clean=True)

    def next_job(self) -> SlotJob | None:
        return self._ahead.popleft() if self._ahead else None

    def take_back(self) -> SlotJob | None:
        return self._ahead.pop() if self._ahead else None

    def has_ahead(self, uuids: Container[str]) -> bool:
        return any(one.job.uuid in uuids for one in self._ahead)

    def stop(self, *, at_once: bool) -> None:
        self.stopped.append(at_once)

    def shows(self) -> str:
        names = [self.current, *self._ahead]
        return " ".join(one.job.uuid for one in names if one is not None)


class Events(SlotListener):
    def __init__(self) -> None:
        self.withdrawn_jobs: list[str] = []

    def withdrawn(self, slot_job: SlotJob) -> None:
        self.withdrawn_jobs.append(slot_job.job.uuid)


class Looped:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capacity: Any, width: int) -> None:
        self.clock, self.slots, self.events = FakeClock(), list[FakeSlot](), Events()

        def make(*_: object) -> FakeSlot:
            self.slots.append(FakeSlot(self.clock))
            return self.slots[-1]

        monkeypatch.setattr(module, "Slot", make)
        context: Any = SimpleNamespace(
            clock=self.clock, spool_dir=str(folder), owner=None, recorder=SimpleNamespace(unwritten=())
        )
        plan = SlotPlan(width=width, logs_dir=str(folder), output_max_bytes=1)
        self.loop = SlotLoop(context, plan, self.events, capacity=capacity)

    def feed(self, *uuids: str, shape: str = "") -> None:
        jobs = [
            SlotJob(Job(uuid=uuid, argv=("true",), created_at_us=1), ("true",), {}, shape=shape)
            for uuid in uuids
        ]
        self.loop.feed_all(jobs)
        self.loop._fill_all()

    def end_job(self, slot: int) -> None:
        self.loop._take_answer(self.slots[slot])  # type: ignore[arg-type]
        self.loop._fill_all()

    def shows(self) -> list[str]:
        return [slot.shows() for slot in self.slots]

    def close(self) -> None:
        for slot in self.slots:
            os.close(slot.socket)
        self.loop.close()


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Looped]]:
    made: list[Looped] = []

    def looped(capacity: "Counter[str] | None" = None, width: int = 1) -> Looped:
        made.append(Looped(tmp_path, monkeypatch, capacity, width))
        return made[-1]

    yield looped
    for one in made:
        one.close()


def test_there_are_no_more_slots_than_the_plan_is_wide(make: Callable[..., Looped]) -> None:
    one = make(width=2)
    one.feed("a", "b", "c", "d", "e")
    assert [shown.split()[0] for shown in one.shows()] == ["a", "b"]
    assert sorted(" ".join(one.shows()).split()[2:]) != [], "short jobs follow without a pause"


def test_a_slot_goes_on_with_the_job_that_waits_in_it(make: Callable[..., Looped]) -> None:
    one = make(width=1)
    one.feed("a", "b", "c")
    one.end_job(0)
    assert one.shows()[0].split()[0] == "b"
    one.end_job(0)
    assert one.shows()[0].split()[0] == "c"


def test_jobs_of_a_shape_without_capacity_wait_behind_those_of_their_shape(
    make: Callable[..., Looped],
) -> None:
    one = make(Counter({"small": 1, "large": 1}))
    one.feed("s1", "s2", shape="small")
    one.feed("l1", shape="large")
    assert one.shows() == ["s1 s2", "l1"]


def test_a_job_that_waits_is_taken_back_once_its_shape_has_capacity(make: Callable[..., Looped]) -> None:
    capacity = Counter({"small": 1, "large": 1})
    one = make(capacity)
    one.feed("s1", "s2", shape="small")
    one.feed("l1", shape="large")
    capacity["small"] += 1
    one.end_job(1)
    assert one.shows() == ["s1", "s2"]


def test_behind_a_job_that_takes_long_none_has_to_wait(make: Callable[..., Looped]) -> None:
    one = make(width=2)
    one.feed("long", "a", "b", "c")
    one.clock.pass_s(60)
    one.slots[1].running_since_ns = one.clock.mono_ns()
    one.loop._free_waiting()
    assert one.shows()[0] == "long"
    one.loop._fill_all()
    assert set(" ".join(one.shows()).split()) | {
        job.job.uuid for waiting in one.loop._unsent.values() for job in waiting
    } == {"long", "a", "b", "c"}


def test_a_job_that_has_not_started_is_withdrawn_and_one_that_runs_is_stopped(
    make: Callable[..., Looped],
) -> None:
    one = make(width=1)
    one.feed("a", "b", "c")
    one.loop.end("b", at_once=False)
    one.loop.end("a", at_once=True)
    one.loop._end_cancelled()
    assert one.events.withdrawn_jobs == ["b"]
    assert one.slots[0].stopped == [True]
    assert one.shows() == ["a"]
