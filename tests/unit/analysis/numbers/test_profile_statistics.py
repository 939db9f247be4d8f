import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from joblens.analysis.numbers.profile_statistics import (
    SPREAD,
    aggregate_profiles,
    numbers_of,
    spreads_in,
    why_without_profile,
)
from joblens.model.jobs.job import Status
from tests.builders.past_jobs import lammps, record_of

FLOATS = st.floats(min_value=-1e6, max_value=1e6)


def test_every_number_gets_its_spread_in_the_shape_of_a_profile() -> None:
    profiles = [{"duration_seconds": seconds, "cpu": {"mean_percent": 10 * seconds}} for seconds in (1, 2, 6)]
    result = aggregate_profiles(profiles)
    assert result["profiles"] == 3
    assert result["duration_seconds"] == {
        "n": 3,
        "mean": 3.0,
        "min": 1,
        "max": 6,
        "stdev": pytest.approx(statistics.stdev([1, 2, 6]), abs=1e-6),
        "median": 2,
    }
    assert result["cpu"]["mean_percent"]["max"] == 60


def test_what_a_profile_does_not_know_does_not_count() -> None:
    known, unknown = {"energy": {"cpu_joules": 4.0}}, {"energy": {"cpu_joules": None}}
    profiles: list[dict[str, Any]] = [known, unknown, {"energy": {}}, {}]
    result = aggregate_profiles(profiles)
    assert (result["profiles"], result["energy"]["cpu_joules"]["n"]) == (4, 1)
    assert result["energy"]["cpu_joules"]["stdev"] is None


def test_strings_that_are_numbers_count_and_others_do_not() -> None:
    stats = {"cpu_percent": "45.23", "memory_usage": "2.5GiB / 16GiB"}
    gpu = {"available": True, "devices": [{"memory_used_mb": 1}]}
    result = aggregate_profiles([{"container_stats": stats, "gpu_stats": gpu, "snapshot_time": "nan"}])
    assert result == {
        "profiles": 1,
        "container_stats": {"cpu_percent": result["container_stats"]["cpu_percent"]},
    }
    assert result["container_stats"]["cpu_percent"]["mean"] == 45.23


def test_no_profiles_add_up_to_nothing() -> None:
    assert aggregate_profiles([]) == {"profiles": 0}


def test_numbers_stand_in_the_order_of_a_profile_also_where_the_first_does_not_know_them() -> None:
    result = aggregate_profiles([{"a": None, "b": {"c": None}, "d": 1}, {"a": 1, "b": {"c": 2}, "d": 3}])
    assert [path for path, _ in spreads_in(result)] == [("a",), ("b", "c"), ("d",)]


@given(st.lists(FLOATS, min_size=1, max_size=20))
def test_a_spread_lies_within_its_extremes(values: list[float]) -> None:
    result = aggregate_profiles({"a": {"b": value}} for value in values)
    [(path, spread)] = spreads_in(result)
    assert path == ("a", "b")
    assert tuple(spread) == SPREAD
    assert spread["n"] == len(values)
    assert spread["min"] - 1e-5 <= spread["median"] <= spread["max"] + 1e-5
    assert spread["min"] - 1e-5 <= spread["mean"] <= spread["max"] + 1e-5


@given(st.dictionaries(st.text(max_size=3), FLOATS, max_size=5))
def test_numbers_are_found_with_the_way_to_them(part: dict[str, float]) -> None:
    assert dict(numbers_of({"x": part})) == {("x", key): value for key, value in part.items()}


@pytest.mark.parametrize(
    ("status", "samples", "started", "reason"),
    [
        (Status.SUCCESS, 2, True, "too_short"),
        (Status.FAILED, 1, True, "too_short"),
        (Status.ERROR, 0, True, "never_ran"),
        (Status.CANCELLED, 0, False, "never_ran"),
        (Status.LOST, 2, True, "lost"),
        (Status.SUCCESS, 0, True, "none_kept"),
    ],
)
def test_why_a_job_has_no_profile(status: Status, samples: int, started: bool, reason: str) -> None:
    record = record_of(lammps(), 1)
    assert record.outcome is not None
    outcome = structs.replace(record.outcome, status=status, samples=samples)
    attempt = record.attempt if started else None
    assert (
        why_without_profile(structs.replace(record, status=status, attempt=attempt, outcome=outcome))
        == reason
    )
