"""What every store must do with columns of samples, and the buckets that are made of them."""

import pytest

from joblens.app.jobs.series import series
from joblens.model.errors import InputError
from joblens.model.writes import SamplesTaken
from joblens.ports.store import Store
from tests.builders.writes import NOON_US, SECOND, ended, queued, sample, samples, started
from tests.unit.stores.sample_series import busy_series

NAMES = ("cpu_total_usec", "processes", "memory_current_bytes", "elapsed_us")


@pytest.mark.parametrize("count", [1, 15, 300, 2500])
@pytest.mark.parametrize("has_ended", [False, True])
def test_columns_are_those_of_the_samples(store: Store, count: int, has_ended: bool) -> None:
    taken = busy_series(count)
    store.apply([queued("a1"), started("a1")])
    for first in range(0, count, 100):
        store.apply([SamplesTaken("a1", first, tuple(taken[first : first + 100]))])
    if has_ended:
        store.apply([ended("a1")])
    found = store.series("a1", NAMES, 0, 1 << 62)
    assert found.at_us == [each.at_us for each in taken]
    for name in NAMES:
        assert found.columns[name] == [getattr(each, name) for each in taken]


def test_a_span_has_one_sample_before_it(store: Store) -> None:
    store.apply([queued("a1"), started("a1"), samples("a1", 0, 4000), ended("a1")])
    start, end = NOON_US + 3000 * SECOND, NOON_US + 3005 * SECOND
    found = store.series("a1", ["network_rx_bytes"], start, end)
    assert found.columns["network_rx_bytes"] == [1500 * index for index in range(2999, 3005)]
    first = store.series("a1", ["network_rx_bytes"], NOON_US, NOON_US + SECOND)
    assert first.at_us == [NOON_US]
    assert store.series("a1", ["network_rx_bytes"], NOON_US + 9999 * SECOND, 1 << 62).at_us == []


def test_a_job_without_samples_has_an_empty_series(store: Store) -> None:
    store.apply([queued("a1")])
    for uuid in ("a1", "nobody"):
        assert store.series(uuid, ["processes"], 0, 1 << 62).at_us == []
    assert series(store, store.find("a1"), ["processes"]).at_us == []


def test_buckets_keep_peaks(store: Store) -> None:
    taken = [sample(index) for index in range(1000)]
    store.apply([queued("a1"), started("a1"), SamplesTaken("a1", 0, tuple(taken)), ended("a1")])
    found = series(
        store, store.find("a1"), ["network_rx_bytes", "network_rx_bytes/s", "processes"], points=10
    )
    assert found.samples == 1000
    assert len(found.at_us) == 10
    counters = found.fields["network_rx_bytes"]
    assert (counters.min[0], counters.max[0], counters.last[-1]) == (0, 1500 * 99, 1500 * 999)
    assert set(found.fields["network_rx_bytes/s"].max) == {1500.0}
    assert set(found.fields["processes"].min) == {3}


@pytest.mark.parametrize(
    ("fields", "options", "message"),
    [
        ([], {}, "name at least one"),
        (["procesess"], {}, "unknown field 'procesess'"),
        (["processes"], {"points": 0}, "points: 0"),
        (["processes"], {"from_us": 5, "to_us": 5}, "must be before"),
    ],
)
def test_bad_questions_are_refused(
    store: Store, fields: list[str], options: dict[str, int], message: str
) -> None:
    store.apply([queued("a1")])
    with pytest.raises(InputError, match=message):
        series(store, store.find("a1"), fields, **options)
