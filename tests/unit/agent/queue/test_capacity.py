"""How many jobs a worker takes at once."""

import itertools
import time

import pytest
from msgspec.structs import replace

from joblens.agent.attempts.preparation import PreparedAttempt
from joblens.agent.queue.capacity import WorkerCapacity
from joblens.agent.queue.claimed_jobs import ClaimedJob, is_limited, places_of
from joblens.model.delivery import Claim, Order, Ticket
from joblens.model.jobs.job import Job, Requirements
from joblens.stores.queue.claims import RoomLeft

JOB = Job(uuid="j", argv=("true",), created_at_us=1)
NUMBERS = itertools.count()


def held(weight: int = 1, *, is_plain: bool = True, asked: Requirements | None = None) -> ClaimedJob:
    job = replace(JOB, uuid=f"j{next(NUMBERS)}", requirements=asked or Requirements())
    claim = Claim(job=job, ticket=Ticket(uuid=job.uuid, queue="q", order=Order()), fence=1)
    return ClaimedJob(claim, PreparedAttempt(job, (), {}, "", ""), "", weight, is_plain)


def with_mean(places: WorkerCapacity, duration_s: float) -> WorkerCapacity:
    """That has seen one job of this length."""
    one = held()
    places.take(one)
    places.leave(one, duration_s)
    return places


def test_places_are_taken_by_weight_and_given_back() -> None:
    places = WorkerCapacity(4)
    assert places.appetite == 4
    large = held(3, is_plain=False)
    assert places.fits(large)
    assert not places.take(large).is_behind
    assert places.free == 1
    assert not places.fits(held(2, is_plain=False))
    places.leave(large, 5.0)
    assert places.free == 4


def test_long_jobs_are_not_claimed_beyond_the_places() -> None:
    places = with_mean(WorkerCapacity(2), 3.0)
    for _ in range(2):
        places.take(held())
    assert places.appetite == 0
    assert not places.fits(held())


def test_short_jobs_are_claimed_ahead_and_take_over_the_place_before_them() -> None:
    places = with_mean(WorkerCapacity(2), 0.002)
    jobs = [held() for _ in range(3)]
    places.take(jobs[0])
    places.take(jobs[1])
    assert places.appetite > 2
    assert places.take(jobs[2]).is_behind  # one of them
    assert places.free == 0
    places.leave(jobs[0], 0.002)
    assert places.free == 0  # the one behind has the place now
    places.leave(jobs[1], 0.002)
    places.leave(jobs[2], 0.002)
    assert places.free == 2


def test_a_job_that_is_large_never_goes_behind_another() -> None:
    places = with_mean(WorkerCapacity(2), 0.001)
    places.take(held())
    assert places.fits(held())
    assert not places.fits(held(3, is_plain=False))
    places.take(held())
    assert places.fits(held())
    assert not places.fits(held(2))


def test_a_job_that_wants_more_places_than_there_are_gets_them_all() -> None:
    places = WorkerCapacity(2)
    huge = held(64, is_plain=False)
    assert places.fits(huge)
    assert places.take(huge).weight == 2
    places.leave(huge, 1.0)
    assert places.free == 2


def test_memory_is_shared_out() -> None:
    places = WorkerCapacity(8, memory_bytes=100)
    first, second = (held(asked=Requirements(memory_bytes=60)) for _ in range(2))
    places.take(first)
    assert places.room().memory_bytes == 40
    assert places.whole().memory_bytes == 100
    assert not places.fits(second)
    places.leave(first, 1.0)
    assert places.fits(second)


def test_a_job_that_wants_more_memory_than_there_is_waits_for_all_of_it() -> None:
    places = WorkerCapacity(8, memory_bytes=100)
    small, huge = held(asked=Requirements(memory_bytes=1)), held(asked=Requirements(memory_bytes=1000))
    places.take(small)
    assert not places.fits(huge)
    places.leave(small, 1.0)
    assert places.fits(huge)


def test_gpus_are_given_by_name_and_to_one_job_at_a_time() -> None:
    places = WorkerCapacity(8, gpus=("3", "5", "7"))
    first, second, third = (held(asked=Requirements(gpus=count)) for count in (2, 2, 1))
    assert places.take(first).devices == ("3", "5")
    assert not places.fits(second)
    assert places.take(third).devices == ("7",)
    places.leave(first, 1.0)
    assert places.take(second).devices == ("3", "5")


def test_a_job_that_was_lent_gpus_takes_none_of_the_others() -> None:
    places = WorkerCapacity(8, gpus=("0",))
    lent = held(asked=Requirements(gpus=1))
    places.lend(lent.uuid, ("GPU-abc",))
    assert places.take(lent).devices == ("GPU-abc",)
    assert places.room().gpus == 1
    places.leave(lent, 1.0)
    assert places.room().gpus == 1


def test_places_that_come_and_go_while_jobs_run_are_counted() -> None:
    places = WorkerCapacity(0)
    one = held(2, is_plain=False)
    assert not places.fits(one)
    places.set_places(2)
    assert places.fits(one)
    places.take(one)
    places.set_places(1)
    assert places.free == 0
    places.leave(one, 1.0)
    assert places.free == 1


def test_a_job_with_gpus_gets_them_in_its_environment_and_its_record() -> None:
    attempt = held().with_devices(("1", "4"))
    assert attempt.env["CUDA_VISIBLE_DEVICES"] == "1,4"
    assert attempt.job.gpu_devices == ("1", "4")


@pytest.mark.parametrize(("cpus", "expected"), [(None, 1), (0.5, 1), (1.0, 1), (1.5, 2), (4.0, 4)])
def test_a_job_takes_a_place_for_each_cpu(cpus: float | None, expected: int) -> None:
    assert places_of(Requirements(cpus=cpus)) == expected


def test_limits_are_what_has_to_be_held() -> None:
    asked = replace(JOB, requirements=Requirements(memory_bytes=1 << 20))
    assert is_limited(asked)
    assert not is_limited(replace(asked, enforce=False))
    assert not is_limited(replace(asked, limits_resources=False))
    assert is_limited(replace(asked, limits_resources=False, requirements=Requirements(timeout_s=1.0)))
    assert not is_limited(JOB)


def test_jobs_that_do_not_say_how_long_they_take_are_taken_for_as_long_as_those_before() -> None:
    places = WorkerCapacity(2, ends_at_s=time.monotonic() + 30)
    assert RoomLeft(places.room()).take(Requirements())  # nothing is known yet
    with_mean(places, 40.0)
    for room in (places.room(), places.whole()):
        assert not RoomLeft(room).take(Requirements())
        assert RoomLeft(room).take(Requirements(timeout_s=10.0))  # what is written holds
    timed = held(asked=Requirements(timeout_s=3600.0))
    places.take(timed)
    places.leave(timed, 3000.0)
    assert places.room().usual_s == 40.0
