"""Tiny jobs handed over before there is room for them."""

from collections import deque
from typing import Any

import pytest

from joblens.engine.schedule.capacity import AHEAD_OF_WORKERS, RunCapacity
from joblens.engine.schedule.events import Command, RunIsOver, StartAttempt, StopMode, StopWanted
from joblens.model.jobs.job import Status
from joblens.model.runs.run import JobState
from tests.unit.engine.plans import GIB, Talk, job, plan_of, starts
from tests.unit.engine.simulated_machine import SimulatedMachine

OFFER = RunCapacity(cpus=2, memory_bytes=GIB)


def tiny(count: int, **settings: Any) -> Talk:
    choices = settings.pop("choices", {})
    return Talk(plan_of(*(job(f"j{i}", **settings) for i in range(count))), OFFER, **choices)


def ahead(commands: list[Command]) -> list[int]:
    return [start.index for start in commands if isinstance(start, StartAttempt) and start.behind]


def test_nothing_goes_ahead_before_a_duration_was_seen() -> None:
    assert ahead(tiny(100).commands) == []


@pytest.mark.parametrize(
    ("duration_s", "expected"), [(0.001, 32), (0.005, 12), (0.03, 2), (0.09, 2), (0.2, 0)]
)
def test_about_thirty_milliseconds_of_work_go_ahead_in_each_lane(duration_s: float, expected: int) -> None:
    talk = tiny(100)
    result = talk.ended(0, duration_s=duration_s)
    assert starts(result)[0] == 2
    assert len(ahead(result)) == expected


def test_the_last_few_are_kept_back() -> None:
    talk = tiny(8)
    result = talk.ended(0, duration_s=0.001)
    assert starts(result) == [2, 3, 4, 5]
    assert ahead(result) == [3, 4, 5]


def test_one_that_lined_up_has_the_place_of_the_one_that_ended() -> None:
    talk = tiny(8)
    talk.ended(0, duration_s=0.001)
    assert starts(talk.ended(1, duration_s=0.001)) == []
    talk.began(3)
    assert talk.state(3) is JobState.RUNNING
    assert talk.state(4) is JobState.PENDING
    assert len(talk.schedule.running()) == 4
    assert talk.schedule.occupancy.capacity.free.cpu_thousandths == 0


@pytest.mark.parametrize(
    "settings",
    [{"cpus": 1.0}, {"memory_bytes": 1 << 20}, {"timeout_s": 5.0}, {"choices": {"may_go_ahead": False}}],
)
def test_jobs_with_limits_and_owners_that_cannot_do_it_get_none_ahead(settings: dict[str, Any]) -> None:
    assert ahead(tiny(100, **settings).ended(0, duration_s=0.001)) == []


def test_limits_that_are_not_enforced_do_not_matter() -> None:
    talk = tiny(100, cpus=1.0, timeout_s=9.0, choices={"enforce": False})
    assert ahead(talk.ended(0, duration_s=0.001))


def test_nothing_goes_ahead_of_a_larger_job_that_waits() -> None:
    jobs = [job(f"j{i}", priority=2 if i < 2 else 0) for i in range(100)]
    talk = Talk(plan_of(*jobs, job("big", cpus=2.0, priority=1)), OFFER)
    assert ahead(talk.ended(0, duration_s=0.001)) == []


def test_draining_takes_back_what_has_not_begun() -> None:
    talk = tiny(8)
    talk.ended(0, duration_s=0.001)
    talk.say(StopWanted(StopMode.DRAIN))
    for index in (3, 4, 5):
        assert talk.ended(index, status=Status.CANCELLED, reason="not-started") == []
        assert talk.state(index) is JobState.READY
    assert talk.ended(1, duration_s=0.001) == []
    assert talk.ended(2, duration_s=0.001) == [RunIsOver()]
    assert talk.schedule.occupancy.capacity.free.cpu_thousandths == 2000


def test_a_thousand_tiny_jobs_end_and_the_room_is_free_again() -> None:
    plan = plan_of(*(job(f"j{i}") for i in range(1000)))
    machine = SimulatedMachine(plan, OFFER, lambda index: 0.004)
    talk = Talk(plan, OFFER, begin=False)
    machine.play(talk.schedule)
    assert talk.schedule.counts() == {JobState.COMPLETED: 1000}
    assert talk.schedule.occupancy.capacity.free == talk.schedule.occupancy.capacity.whole
    assert machine.overs == 1
    assert sum(start.behind for _, start in machine.starts) > 900
    assert machine.now_s == pytest.approx(2.0)


def test_killing_gives_every_place_back() -> None:
    talk = tiny(50)
    talk.ended(0, duration_s=0.001)
    waiting = deque(talk.schedule.running())
    talk.say(StopWanted(StopMode.KILL))
    while waiting:
        index = waiting.pop()
        talk.ended(index, status=Status.CANCELLED, reason="not-started")
    assert talk.is_over
    assert talk.schedule.occupancy.capacity.free == talk.schedule.occupancy.capacity.whole


@pytest.mark.parametrize(("duration_s", "expected"), [(0.05, 40), (0.5, 4), (10.0, 2), (60.0, 0)])
def test_a_second_of_work_is_queued_ahead_for_workers(duration_s: float, expected: int) -> None:
    talk = tiny(100, choices={"ahead": AHEAD_OF_WORKERS})
    assert len(ahead(talk.ended(0, duration_s=duration_s))) == expected


def test_jobs_with_limits_are_queued_ahead_for_workers_and_never_here() -> None:
    for choices, expected in (({"ahead": AHEAD_OF_WORKERS}, 4), ({}, 0)):
        talk = tiny(100, choices=choices, memory_bytes=1024)
        assert len(ahead(talk.ended(0, duration_s=0.5))) == expected


def test_a_job_that_workers_lost_for_good_has_failed_and_one_that_was_lost_here_is_tried_again() -> None:
    here = tiny(1)
    assert starts(here.ended(0, status=Status.LOST)) == [0]
    there = tiny(1, choices={"lost_is_final": True})
    assert starts(there.ended(0, status=Status.LOST)) == []
    assert there.schedule.state_of(0) is JobState.FAILED
    assert there.schedule.whys[0] == "lost with its worker"
