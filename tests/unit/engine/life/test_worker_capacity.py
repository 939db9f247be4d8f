"""How many jobs a worker takes at once."""

from joblens.engine.life.worker_capacity import Demand, Share, WorkerCapacity
from joblens.model.jobs.job import Requirements
from joblens.stores.queue.claims import RemainingCapacity

NOW_S = 100.0


class Asking:
    """A job with a demand, by a number of its own."""

    count = 0

    def __init__(self, weight: int = 1, *, is_plain: bool = True, asked: Requirements | None = None) -> None:
        Asking.count += 1
        self.uuid = f"j{Asking.count}"
        self.demand = Demand(asked or Requirements(), weight, is_plain)

    def fits(self, capacity: WorkerCapacity) -> bool:
        return capacity.fits(self.uuid, self.demand)

    def take(self, capacity: WorkerCapacity) -> Share:
        return capacity.take(self.uuid, self.demand)


def with_mean(capacity: WorkerCapacity, duration_s: float) -> WorkerCapacity:
    """That has seen one job of this length."""
    one = Asking()
    one.take(capacity)
    capacity.leave(one.uuid, duration_s)
    return capacity


def test_capacity_are_taken_by_weight_and_given_back() -> None:
    capacity = WorkerCapacity(4)
    assert capacity.claim_limit == 4
    large = Asking(3, is_plain=False)
    assert large.fits(capacity)
    assert not large.take(capacity).is_behind
    assert capacity.free == 1
    assert not Asking(2, is_plain=False).fits(capacity)
    capacity.leave(large.uuid, 5.0)
    assert capacity.free == 4


def test_long_jobs_are_not_claimed_beyond_the_capacity() -> None:
    capacity = with_mean(WorkerCapacity(2), 3.0)
    for _ in range(2):
        Asking().take(capacity)
    assert capacity.claim_limit == 0
    assert not Asking().fits(capacity)


def test_short_jobs_are_claimed_ahead_and_take_over_the_place_before_them() -> None:
    capacity = with_mean(WorkerCapacity(2), 0.002)
    jobs = [Asking() for _ in range(3)]
    jobs[0].take(capacity)
    jobs[1].take(capacity)
    assert capacity.claim_limit > 2
    assert jobs[2].take(capacity).is_behind  # one of them
    assert capacity.free == 0
    capacity.leave(jobs[0].uuid, 0.002)
    assert capacity.free == 0  # the one behind has the place now
    capacity.leave(jobs[1].uuid, 0.002)
    capacity.leave(jobs[2].uuid, 0.002)
    assert capacity.free == 2


def test_a_job_that_is_large_never_goes_behind_another() -> None:
    capacity = with_mean(WorkerCapacity(2), 0.001)
    Asking().take(capacity)
    assert Asking().fits(capacity)
    assert not Asking(3, is_plain=False).fits(capacity)
    Asking().take(capacity)
    assert Asking().fits(capacity)
    assert not Asking(2).fits(capacity)


def test_a_job_that_wants_more_capacity_than_there_are_gets_them_all() -> None:
    capacity = WorkerCapacity(2)
    huge = Asking(64, is_plain=False)
    assert huge.fits(capacity)
    assert huge.take(capacity).weight == 2
    capacity.leave(huge.uuid, 1.0)
    assert capacity.free == 2


def test_memory_is_shared_out() -> None:
    capacity = WorkerCapacity(8, memory_bytes=100)
    first, second = (Asking(asked=Requirements(memory_bytes=60)) for _ in range(2))
    first.take(capacity)
    assert capacity.free_now(NOW_S).memory_bytes == 40
    assert capacity.total(NOW_S).memory_bytes == 100
    assert not second.fits(capacity)
    capacity.leave(first.uuid, 1.0)
    assert second.fits(capacity)


def test_a_job_that_wants_more_memory_than_there_is_waits_for_all_of_it() -> None:
    capacity = WorkerCapacity(8, memory_bytes=100)
    small, huge = Asking(asked=Requirements(memory_bytes=1)), Asking(asked=Requirements(memory_bytes=1000))
    small.take(capacity)
    assert not huge.fits(capacity)
    capacity.leave(small.uuid, 1.0)
    assert huge.fits(capacity)


def test_gpus_are_given_by_name_and_to_one_job_at_a_time() -> None:
    capacity = WorkerCapacity(8, gpus=("3", "5", "7"))
    first, second, third = (Asking(asked=Requirements(gpus=count)) for count in (2, 2, 1))
    assert first.take(capacity).devices == ("3", "5")
    assert not second.fits(capacity)
    assert third.take(capacity).devices == ("7",)
    capacity.leave(first.uuid, 1.0)
    assert second.take(capacity).devices == ("3", "5")


def test_a_job_that_was_lent_gpus_takes_none_of_the_others() -> None:
    capacity = WorkerCapacity(8, gpus=("0",))
    lent = Asking(asked=Requirements(gpus=1))
    capacity.assign_devices(lent.uuid, ("GPU-abc",))
    assert lent.take(capacity).devices == ("GPU-abc",)
    assert capacity.free_now(NOW_S).gpus == 1
    capacity.leave(lent.uuid, 1.0)
    assert capacity.free_now(NOW_S).gpus == 1


def test_capacity_that_come_and_go_while_jobs_run_are_counted() -> None:
    capacity = WorkerCapacity(0)
    one = Asking(2, is_plain=False)
    assert not one.fits(capacity)
    capacity.resize(2)
    assert one.fits(capacity)
    one.take(capacity)
    capacity.resize(1)
    assert capacity.free == 0
    capacity.leave(one.uuid, 1.0)
    assert capacity.free == 1


def test_jobs_that_do_not_say_how_long_they_take_are_taken_for_as_long_as_those_before() -> None:
    capacity = WorkerCapacity(2, ends_at_s=NOW_S + 30)
    assert RemainingCapacity(capacity.free_now(NOW_S)).take(Requirements())  # nothing is known yet
    with_mean(capacity, 40.0)
    for left in (capacity.free_now(NOW_S), capacity.total(NOW_S)):
        assert not RemainingCapacity(left).take(Requirements())
        assert RemainingCapacity(left).take(Requirements(timeout_s=10.0))  # what is written holds
    timed = Asking(asked=Requirements(timeout_s=3600.0))
    timed.take(capacity)
    capacity.leave(timed.uuid, 3000.0)
    assert capacity.free_now(NOW_S).usual_s == 40.0
