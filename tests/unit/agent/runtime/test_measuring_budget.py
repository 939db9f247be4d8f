"""Looking closely costs a share of a core, however many jobs there are."""

from collections.abc import Iterator

import pytest

from joblens.agent.instruments import table as look_budget
from joblens.agent.instruments.table import MEASURED, pause_ns


class Meter:
    pass


@pytest.fixture(autouse=True)
def no_other_meters() -> Iterator[None]:
    """Meters of jobs that earlier tests of this process left open would share the budget."""
    others = set(MEASURED)
    MEASURED.difference_update(others)
    yield
    MEASURED.update(others)


def test_a_dear_look_is_followed_by_a_long_pause() -> None:
    assert pause_ns(1_000_000) == 2_000_000_000


def test_many_jobs_share_what_looking_may_cost() -> None:
    meters = [Meter() for _ in range(8 * look_budget._FULL_SHARES)]
    alone = pause_ns(1000)
    for meter in meters:
        MEASURED.add(meter)
    assert pause_ns(1000) >= 7 * alone
    MEASURED.difference_update(meters)
    assert pause_ns(1000) == alone


def test_the_first_looks_at_a_job_are_free_as_far_as_there_are_not_many() -> None:
    check, free = 6_000_000, look_budget._FREE_NS
    assert pause_ns(check, free) == 0
    assert pause_ns(check, free + 1) == pause_ns(check) > 0
    meters = [Meter() for _ in range(8 * look_budget._FULL_SHARES)]
    for meter in meters:
        MEASURED.add(meter)
    assert pause_ns(check, free // 2) == pause_ns(check)
    MEASURED.difference_update(meters)
