"""How many jobs a worker takes at once."""

import pytest
from msgspec.structs import replace

from joblens.agent.claimed_jobs import ClaimedJob, is_limited, places_of
from joblens.agent.held_places import HeldPlaces
from joblens.agent.run_attempts import PreparedAttempt
from joblens.model.delivery import Claim, Order, Ticket
from joblens.model.job import Job, Requirements

JOB = Job(uuid="j", argv=("true",), created_at_us=1)
CLAIM = Claim(job=JOB, ticket=Ticket(uuid="j", queue="q", order=Order()), fence=1)


def held(weight: int = 1, *, is_plain: bool = True) -> ClaimedJob:
    return ClaimedJob(CLAIM, PreparedAttempt(JOB, (), {}, "", ""), "", weight, is_plain)


def test_places_are_taken_by_weight_and_given_back() -> None:
    places = HeldPlaces(4)
    assert places.appetite == 4
    large = held(3, is_plain=False)
    assert places.fits(large)
    assert not places.take(large)
    assert places.free == 1
    assert not places.fits(held(2, is_plain=False))
    places.leave(large, 5.0)
    assert places.free == 4


def test_long_jobs_are_not_claimed_beyond_the_places() -> None:
    places = HeldPlaces(2)
    for _ in range(2):
        places.take(held())
    places.leave(held(), 3.0)
    places.take(held())
    assert places.appetite == 0
    assert not places.fits(held())


def test_short_jobs_are_claimed_ahead_and_take_over_the_place_before_them() -> None:
    places = HeldPlaces(2)
    places.take(held())
    places.leave(held(), 0.002)
    places.take(held())
    places.take(held())
    ahead = places.appetite
    assert ahead > 2
    assert places.take(held())  # behind one of them
    assert places.free == 0
    places.leave(held(), 0.002)
    assert places.free == 0  # the one behind has the place now
    places.leave(held(), 0.002)
    places.leave(held(), 0.002)
    assert places.free == 2


def test_a_job_that_is_large_never_goes_behind_another() -> None:
    places = HeldPlaces(2)
    places.take(held())
    places.leave(held(), 0.001)
    places.take(held())
    assert places.fits(held())
    assert not places.fits(held(2))
    assert not places.fits(held(2, is_plain=False))


@pytest.mark.parametrize(("cpus", "expected"), [(None, 1), (0.5, 1), (1.0, 1), (1.5, 2), (4.0, 4), (64.0, 8)])
def test_a_job_takes_a_place_for_each_cpu_but_no_more_than_there_are(
    cpus: float | None, expected: int
) -> None:
    assert places_of(Requirements(cpus=cpus), 8) == expected


def test_limits_are_what_has_to_be_held() -> None:
    asked = replace(JOB, requirements=Requirements(memory_bytes=1 << 20))
    assert is_limited(asked)
    assert not is_limited(replace(asked, enforce=False))
    assert not is_limited(replace(asked, limits_resources=False))
    assert is_limited(replace(asked, limits_resources=False, requirements=Requirements(timeout_s=1.0)))
    assert not is_limited(JOB)
