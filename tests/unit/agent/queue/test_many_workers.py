"""However many workers there are, together they ask the store about as much."""

import pytest

from joblens.agent.queue.lost_workers import poll_every_s
from joblens.engine.life.held_claim import renew_every_s

_LEASE_S = 30.0


def test_a_few_workers_learn_within_a_second_that_a_job_is_to_end() -> None:
    assert renew_every_s(_LEASE_S, is_busy=True, workers=0) == 1.0
    assert renew_every_s(_LEASE_S, is_busy=True, workers=100) == 1.0
    assert renew_every_s(_LEASE_S, is_busy=False, workers=100) == 5.0


@pytest.mark.parametrize("workers", [0, 500, 1000, 2000, 100_000])
def test_a_lease_is_renewed_four_times_at_least_and_looked_at_three_times(workers: int) -> None:
    assert renew_every_s(_LEASE_S, is_busy=True, workers=workers) <= _LEASE_S / 4
    assert poll_every_s(_LEASE_S, workers) <= _LEASE_S / 3


def test_many_workers_renew_no_more_often_together_than_some_do() -> None:
    assert 1000 / renew_every_s(_LEASE_S, is_busy=True, workers=1000) <= 250
    assert 900 / poll_every_s(_LEASE_S, 900) <= 100


def test_a_short_lease_is_renewed_in_time_whatever_the_number_of_workers() -> None:
    assert renew_every_s(2.0, is_busy=True, workers=5000) == 0.5
    assert poll_every_s(0.3, 5000) == 0.5
