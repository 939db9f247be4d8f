import pytest
from hypothesis import given
from hypothesis import strategies as st

from joblens.analysis.numbers.statistics import (
    ZERO_BUCKET,
    bucket_of,
    merge,
    nearest_rank,
    quantile,
    summary_form,
    value_of,
)
from joblens.model.history import GroupStatistics, Statistics
from joblens.model.values.units import MIB
from tests.builders.distributions import buckets_of, distribution_of

positive = st.floats(min_value=1e-9, max_value=1e18)


@given(positive)
def test_a_value_is_within_one_percent_of_its_bucket(value: float) -> None:
    assert abs(value_of(bucket_of(value)) - value) <= 0.01 * value


@given(positive, positive)
def test_buckets_keep_the_order_of_values(one: float, other: float) -> None:
    small, large = sorted((one, other))
    assert bucket_of(small) <= bucket_of(large)


def test_zero_has_a_bucket_of_its_own_below_all_others() -> None:
    assert bucket_of(0) == ZERO_BUCKET < bucket_of(1e-9)
    assert value_of(ZERO_BUCKET) == 0.0


def exact_quantile(values: list[float], q: float) -> float:
    """By its definition: the smallest value such that at least a share q of all is not larger."""
    ordered = sorted(values)
    reached = (value for place, value in enumerate(ordered, 1) if place >= q * len(ordered) - 1e-9)
    return next(reached, ordered[-1])


percent = st.integers(min_value=0, max_value=100).map(lambda hundredths: hundredths / 100)


@given(st.lists(positive, min_size=1, max_size=200), percent)
def test_a_quantile_is_within_one_percent_of_the_exact_one(values: list[float], q: float) -> None:
    exact = exact_quantile(values, q)
    estimate = quantile(buckets_of(values), q)
    assert estimate is not None
    assert abs(estimate - exact) <= 0.01 * exact


@pytest.mark.parametrize(
    ("count", "p50", "p90", "p99"),
    [(1, 1, 1, 1), (2, 1, 2, 2), (3, 2, 3, 3), (10, 5, 9, 10), (100, 50, 90, 99)],
)
def test_percentiles_of_few_jobs_are_by_nearest_rank(count: int, p50: int, p90: int, p99: int) -> None:
    spread = distribution_of(float(value) for value in range(1, count + 1))
    assert spread.p50 == pytest.approx(p50, rel=0.01)
    assert spread.p90 == pytest.approx(p90, rel=0.01)
    assert spread.p99 == pytest.approx(p99, rel=0.01)


def test_a_share_that_is_a_whole_number_of_values_is_not_rounded_up() -> None:
    assert 0.07 * 100 > 7  # floating point
    assert nearest_rank(0.07, 100) == 6


@given(st.lists(positive), st.lists(positive))
def test_merging_buckets_equals_bucketing_everything_together(one: list[float], other: list[float]) -> None:
    assert merge(buckets_of(one), buckets_of(other)) == buckets_of(one + other)


def test_no_values_have_no_quantile() -> None:
    assert quantile({}, 0.5) is None


def test_a_distribution_has_exact_sum_mean_and_maximum() -> None:
    spread = distribution_of([1.0, 2.0, 3.0, 10.0])
    assert (spread.count, spread.total, spread.mean, spread.max) == (4, 16.0, 4.0, 10.0)


def test_no_percentile_exceeds_the_maximum() -> None:
    spread = distribution_of([7.0])
    assert spread.p99 is not None
    assert spread.max is not None
    assert spread.p99 <= spread.max


def test_a_percentile_that_is_the_largest_value_is_exact() -> None:
    spread = distribution_of([3.0, 7.0, 11.3])
    assert (spread.p90, spread.p99) == (11.3, 11.3)


def test_percentiles_of_equal_values_are_exact() -> None:
    spread = distribution_of([100.0] * 8)
    assert (spread.p50, spread.p90, spread.p99) == (100.0, 100.0, 100.0)


def test_an_empty_distribution_knows_nothing() -> None:
    spread = distribution_of([])
    assert (spread.count, spread.mean, spread.p50, spread.max) == (0, None, None, None)


def some_statistics() -> Statistics:
    solver = GroupStatistics(
        jobs=4,
        by_status={"success": 3, "failed": 1},
        duration_s=distribution_of([1.0, 2.0, 3.0, 4.0]),
        cpu_s=distribution_of([0.5, 0.5, 1.0]),
        memory_peak_bytes=distribution_of([8 * MIB]),
    )
    return Statistics(overall=solver, by_tool={"solver": solver})


def test_the_summary_has_the_keys_other_tools_read() -> None:
    summary = summary_form(some_statistics())
    assert summary["total_jobs"] == 4
    assert (summary["successful"], summary["failed"], summary["success_rate"]) == (3, 1, 75.0)
    assert summary["total_cpu_time_seconds"] == 2.0
    assert (summary["total_duration_seconds"], summary["average_duration_seconds"]) == (10.0, 2.5)
    by_tool = summary["by_tool"]
    assert isinstance(by_tool, dict)
    assert by_tool["solver"]["count"] == 4
    assert by_tool["solver"]["total_duration"] == 10.0


def test_an_empty_summary_has_the_same_keys_as_a_full_one() -> None:
    assert summary_form(Statistics()).keys() == summary_form(some_statistics()).keys()
    assert summary_form(Statistics())["success_rate"] == 0.0


def test_the_summary_gives_memory_in_mib() -> None:
    memory = summary_form(some_statistics())["memory_peak_mb"]
    assert isinstance(memory, dict)
    assert memory["max"] == pytest.approx(8.0)
