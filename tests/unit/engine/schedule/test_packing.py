"""Who starts when: what fits, in which order, and who may pass whom."""

import pytest

from joblens.engine.schedule import backfill
from joblens.engine.schedule.backfill import FreeCapacity, reserve
from joblens.engine.schedule.capacity import RunCapacity, Shape, Unfit, unfit
from joblens.engine.schedule.events import StartAttempt, StateChanged
from joblens.engine.schedule.schedule import Schedule
from tests.unit.engine.plans import GIB, OFFER, Talk, job, plan_of, starts
from tests.unit.engine.simulated_machine import SimulatedMachine

ONE_BIG = RunCapacity(cpus=4, memory_bytes=8 * GIB)


def test_jobs_that_could_never_start_are_named_with_what_they_lack() -> None:
    plan = plan_of(
        job("fits"), job("a", cpus=5.0, gpus=3), job("b", memory_bytes=9 * GIB), job("c", timeout_s=11.0)
    )
    offer = RunCapacity(cpus=4, memory_bytes=8 * GIB, gpus=("x",), time_s=10)
    assert unfit(plan, offer) == [
        Unfit(1, "cpus", 5, 4),
        Unfit(1, "gpus", 3, 1),
        Unfit(2, "memory", 9 * GIB, 8 * GIB),
        Unfit(3, "time", 11, 10),
    ]


def test_a_job_without_requirements_packs_as_one_cpu() -> None:
    assert starts(Talk(plan_of(*(job(f"j{i}") for i in range(6)))).commands) == [0, 1, 2, 3]


def test_tenths_of_cpus_add_up_exactly() -> None:
    talk = Talk(plan_of(*(job(f"j{i}", cpus=0.1) for i in range(11))), RunCapacity(cpus=1, memory_bytes=GIB))
    assert len(starts(talk.commands)) == 10


def test_no_more_jobs_run_than_asked_for() -> None:
    talk = Talk(
        plan_of(*(job(f"j{i}") for i in range(4))), RunCapacity(cpus=8, memory_bytes=GIB, most_jobs=2)
    )
    assert starts(talk.commands) == [0, 1]
    assert starts(talk.ended(1)) == [2]


def test_devices_are_given_by_name_and_given_back() -> None:
    talk = Talk(plan_of(job("a", gpus=1), job("b", gpus=1), job("c", gpus=1)), OFFER)
    given = [start.gpus for start in talk.commands if isinstance(start, StartAttempt)]
    assert given == [("gpu0",), ("gpu1",)]
    assert talk.schedule.occupancy.held[1].devices == ("gpu1",)
    result = talk.ended(1)
    assert [start.gpus for start in result if isinstance(start, StartAttempt)] == [("gpu1",)]


def test_free_devices_are_given_in_the_order_offered() -> None:
    room = FreeCapacity(RunCapacity(cpus=4, memory_bytes=GIB, gpus=("a", "b", "c")))
    one = Shape(0, 0, 1)
    taken = [room.take(one) for _ in range(3)]
    for devices in reversed(taken):
        room.give_back(one, devices)
    assert room.take(Shape(0, 0, 2)) == ("a", "b")


def test_priority_comes_before_all_else() -> None:
    talk = Talk(plan_of(job("long", cpus=4.0, timeout_s=99.0), job("urgent", cpus=4.0, priority=1)))
    assert starts(talk.commands) == [1]


def test_the_longest_chain_comes_first() -> None:
    plan = plan_of(job("alone", cpus=4.0), job("first", cpus=4.0), job("second", 1))
    assert starts(Talk(plan).commands) == [1]


def test_known_durations_decide_which_chain_is_longest() -> None:
    plan = plan_of(job("alone", cpus=4.0), job("first", cpus=4.0), job("second", 1))
    assert starts(Talk(plan, expected_s={0: 100.0, 1: 1.0, 2: 1.0}).commands) == [0]


def test_the_larger_of_two_alike_comes_first_and_then_the_one_written_first() -> None:
    talk = Talk(plan_of(job("a", cpus=1.0), job("b", cpus=3.0), job("c", cpus=1.0)))
    assert starts(talk.commands) == [1, 0]


def test_a_short_job_fills_the_gap_before_the_reservation_and_a_long_one_does_not() -> None:
    plan = plan_of(
        job("runs", cpus=3.0, timeout_s=100.0, priority=3),
        job("big", cpus=4.0, timeout_s=10.0, priority=2),
        job("long", cpus=1.0, timeout_s=200.0, priority=1),
        job("short", cpus=1.0, timeout_s=50.0),
    )
    talk = Talk(plan, ONE_BIG)
    assert starts(talk.commands) == [0, 3]
    assert talk.schedule.why(2) == "waits for 1 CPU (0 of 4 free)"
    assert starts(talk.ended(3, duration_s=45.0)) == []
    assert talk.schedule.why(2) == "waits for a job that was ready earlier"
    assert starts(talk.ended(0)) == [1]


def test_a_long_job_may_pass_when_the_reservation_leaves_room_for_it() -> None:
    plan = plan_of(
        job("runs", cpus=2.0, timeout_s=100.0, priority=3),
        job("big", cpus=3.0, timeout_s=10.0, priority=2),
        job("long", cpus=1.0, timeout_s=900.0),
    )
    assert starts(Talk(plan, ONE_BIG).commands) == [0, 2]


def test_a_reservation_is_for_when_enough_has_ended() -> None:
    room = FreeCapacity(RunCapacity(cpus=4, memory_bytes=100))
    for _ in range(3):
        room.take(Shape(1000, 10, 0))
    running = [(30.0, Shape(1000, 10, 0)), (10.0, Shape(1000, 10, 0)), (20.0, Shape(1000, 10, 0))]
    reservation = reserve(Shape(3000, 10, 0), room, running, 5.0)
    assert reservation.at_s == 20.0
    assert reservation.spare == Shape(0, 80, 0)


@pytest.mark.parametrize("runtime_s", [None, 5.0])
def test_a_big_job_is_not_passed_for_ever_even_when_all_durations_are_wrong(runtime_s: float | None) -> None:
    """Each small job says it takes 5 s, or nothing, and takes so long that two always overlap."""
    small = [job(f"small{i}", cpus=2.0, timeout_s=runtime_s) for i in range(400)]
    big = job("big", cpus=4.0, timeout_s=runtime_s)
    # The chain before the big job ends when the machine is already full of small ones.
    talk = Talk(plan_of(job("before", cpus=2.0, priority=9), big, *small), expected_s={})
    first = talk.schedule.running()
    assert 0 in first
    passed = 0
    talk.ended(0)
    while 1 not in talk.schedule.running():
        running = talk.schedule.running()
        ended = running[0]
        passed += len(starts(talk.ended(ended, after_s=20.0, duration_s=20.0)))
        assert passed < backfill.MAX_PASSED + 10
    assert passed <= backfill.MAX_PASSED + 4


def test_a_large_job_is_not_put_off_for_ever_by_longer_chains() -> None:
    """Ready at once, and behind all the others in the order."""
    chains, length = 8, 100
    jobs = [job("big", cpus=4.0)]
    for _ in range(chains):
        for step in range(length):
            jobs.append(job(f"small{len(jobs)}", *((len(jobs) - 1,) if step else ()), cpus=1.0))
    machine = SimulatedMachine(plan_of(*jobs), OFFER, lambda index: 10.0 + index % 3)
    machine.play(Schedule(plan_of(*jobs), OFFER))
    order = [start.index for _, start in machine.starts]
    assert order.index(0) <= 2 * backfill.MAX_PASSED
    bound_s = sum(10.0 + index % 3 for index in range(1, len(jobs))) / 4 + 10
    assert machine.now_s <= 1.05 * bound_s


def test_turns_are_for_jobs_of_the_same_priority() -> None:
    jobs = [job("big", cpus=4.0), *(job(f"small{i}", cpus=1.0, priority=1) for i in range(300))]
    machine = SimulatedMachine(plan_of(*jobs), OFFER, lambda index: 1.0)
    machine.play(Schedule(plan_of(*jobs), OFFER))
    assert machine.starts[-1][1].index == 0


def test_jobs_that_become_ready_and_have_to_wait_are_reported() -> None:
    talk = Talk(plan_of(job("a"), job("b", 0), job("c", 0, cpus=4.0)))
    result = talk.ended(0)
    assert starts(result) == [2]
    assert StateChanged(1) in result
