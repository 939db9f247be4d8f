"""Buckets of time: nothing between the least and the largest value is lost that a chart would show."""

from hypothesis import given
from hypothesis import strategies as st

from joblens.analysis.numbers.downsampling import bucket_bounds, downsampled, rates

_TIMES = st.lists(st.integers(0, 10_000), unique=True, max_size=200).map(sorted)


@given(times=_TIMES, points=st.integers(1, 50))
def test_every_sample_of_the_span_is_in_one_bucket(times: list[int], points: int) -> None:
    bounds = bucket_bounds(times, 1000, 9000, points)
    inside = [index for first, behind in bounds for index in range(first, behind)]
    assert inside == [index for index, at in enumerate(times) if 1000 <= at < 9000]
    assert len(bounds) <= points


@given(values=st.lists(st.none() | st.integers(-5, 5), min_size=1, max_size=200), points=st.integers(1, 20))
def test_the_least_the_largest_and_the_last_value_of_each_bucket_are_kept(
    values: list[int | None], points: int
) -> None:
    times = list(range(len(values)))
    bounds = bucket_bounds(times, 0, len(values), points)
    found = downsampled(values, bounds)
    for number, (first, behind) in enumerate(bounds):
        known = [value for value in values[first:behind] if value is not None]
        expected = (min(known), max(known), known[-1]) if known else (None, None, None)
        assert (found.min[number], found.max[number], found.last[number]) == expected


def test_a_rate_is_per_second_and_unknown_where_a_counter_fell() -> None:
    times = [0, 1_000_000, 3_000_000, 4_000_000]
    assert rates(times, [0, 10, 30, 5]) == [None, 10.0, 10.0, None]


def test_a_rate_over_a_gap_is_that_since_the_last_known_value() -> None:
    times = [0, 1_000_000, 2_000_000, 4_000_000]
    assert rates(times, [0, None, 20, None]) == [None, None, 10.0, None]
    assert rates([], []) == []
