"""Ratios and their intervals, checked against counting every arrangement by hand and against simulation."""

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joblens.analysis.comparing.bench import (
    median_cut,
    median_interval,
    outliers,
    paired_ratio,
    rank_sum_cut,
    ratio_of,
    signed_rank_cut,
    unpaired_ratio,
)

times = st.floats(min_value=0.001, max_value=1000, allow_nan=False)


def share_of_signs_with_at_most(pairs: int, k: int) -> float:
    sums = [
        sum(rank for rank, sign in zip(range(1, pairs + 1), signs, strict=True) if sign)
        for signs in itertools.product((0, 1), repeat=pairs)
    ]
    return sum(one <= k for one in sums) / len(sums)


def share_of_mixtures_with_at_most(first: int, second: int, k: int) -> float:
    places = range(first + second)
    counts = []
    for chosen in itertools.combinations(places, first):
        others = [place for place in places if place not in chosen]
        counts.append(sum(one > other for one in chosen for other in others))
    return sum(one <= k for one in counts) / len(counts)


@pytest.mark.parametrize("pairs", range(1, 12))
def test_the_cut_of_signed_ranks_is_the_widest_that_keeps_the_confidence(pairs: int) -> None:
    cut = signed_rank_cut(pairs, 0.05)
    if cut is None:
        assert 2 * share_of_signs_with_at_most(pairs, 0) > 0.05
        return
    k, confidence = cut
    assert confidence == pytest.approx(1 - 2 * share_of_signs_with_at_most(pairs, k))
    assert 2 * share_of_signs_with_at_most(pairs, k) <= 0.05 < 2 * share_of_signs_with_at_most(pairs, k + 1)


@pytest.mark.parametrize(("first", "second"), [(2, 3), (3, 3), (4, 4), (5, 4), (3, 7), (6, 6)])
def test_the_cut_of_rank_sums_is_the_widest_that_keeps_the_confidence(first: int, second: int) -> None:
    cut = rank_sum_cut(first, second, 0.05)
    if cut is None:
        assert 2 * share_of_mixtures_with_at_most(first, second, 0) > 0.05
        return
    k, confidence = cut
    missed = 2 * share_of_mixtures_with_at_most(first, second, k)
    assert confidence == pytest.approx(1 - missed)
    assert missed <= 0.05 < 2 * share_of_mixtures_with_at_most(first, second, k + 1)


def test_the_approximation_goes_on_where_exact_counting_ends() -> None:
    exact, approximate = signed_rank_cut(80, 0.05), signed_rank_cut(81, 0.05)
    assert exact is not None
    assert approximate is not None
    total, wider = 80 * 81 / 2, 81 * 82 / 2
    assert approximate[0] / wider == pytest.approx(exact[0] / total, rel=0.01)
    exact, approximate = rank_sum_cut(40, 40, 0.05), rank_sum_cut(41, 41, 0.05)
    assert exact is not None
    assert approximate is not None
    assert approximate[0] / 41**2 == pytest.approx(exact[0] / 40**2, rel=0.02)


def test_the_median_of_few_values_has_no_interval_and_of_six_the_whole_range() -> None:
    assert median_cut(5, 0.05) is None
    interval = median_interval([3, 1, 2, 6, 5, 4])
    assert interval is not None
    assert (interval.low, interval.high) == (1, 6)
    assert interval.confidence == pytest.approx(1 - 2 / 64)


@given(st.lists(times, min_size=6, max_size=12), st.floats(min_value=0.1, max_value=10))
def test_a_constant_factor_is_found_exactly(baseline: list[float], factor: float) -> None:
    found = paired_ratio([value * factor for value in baseline], baseline)
    assert found.value == pytest.approx(factor)
    assert found.interval is not None
    assert found.interval.low == pytest.approx(factor)
    assert found.interval.high == pytest.approx(factor)


@given(st.lists(times, min_size=4, max_size=9), st.lists(times, min_size=4, max_size=9))
def test_seen_from_the_other_side_a_ratio_is_its_inverse(one: list[float], other: list[float]) -> None:
    there, back = ratio_of(one, other), ratio_of(other, one)
    assert there.value == pytest.approx(1 / back.value)
    assert there.interval is not None
    assert back.interval is not None
    assert there.interval.low == pytest.approx(1 / back.interval.high)
    assert there.interval.low <= there.value * (1 + 1e-9)
    assert there.value <= there.interval.high * (1 + 1e-9)


@given(st.lists(times, min_size=4, max_size=9), st.lists(times, min_size=4, max_size=9), times)
def test_the_unit_of_time_changes_nothing(one: list[float], other: list[float], unit: float) -> None:
    before = unpaired_ratio(one, other)
    after = unpaired_ratio([value * unit for value in one], [value * unit for value in other])
    assert after.value == pytest.approx(before.value)


@given(st.lists(times, min_size=7, max_size=12), st.randoms(use_true_random=False))
def test_one_run_that_took_a_thousand_times_as_long_moves_the_estimate_little(
    baseline: list[float], source: random.Random
) -> None:
    values = [value * source.uniform(0.99, 1.01) for value in baseline]
    disturbed = [values[0] * 1000, *values[1:]]
    assert paired_ratio(disturbed, baseline).value == pytest.approx(1, abs=0.03)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    source = random.Random(7)
    rounds, held = 400, 0
    for _ in range(rounds):
        baseline = [source.lognormvariate(0, 0.05) for _ in range(10)]
        values = [1.1 * source.lognormvariate(0, 0.05) for _ in range(10)]
        interval = paired_ratio(values, baseline).interval
        assert interval is not None
        held += interval.holds(1.1)
    assert held / rounds > 0.93  # 95.1 % is promised; three deviations of 400 tries are 3.2 %, one is 1.1 %


def test_a_difference_of_the_detectable_size_is_mostly_seen() -> None:
    source = random.Random(11)
    seen, tries = 0, 300
    for _ in range(tries):
        baseline = [source.lognormvariate(0, 0.04) for _ in range(12)]
        smallest = math.exp(2.8 * 0.04 * math.sqrt(2 / 12) / math.sqrt(3 / math.pi))
        values = [smallest * source.lognormvariate(0, 0.04) for _ in range(12)]
        seen += bool(paired_ratio(values, baseline).differs)
    assert 0.65 < seen / tries < 0.92


def test_few_pairs_are_compared_as_heaps_and_too_few_have_no_interval() -> None:
    four = ratio_of([2.0, 2.1, 2.2, 2.3], [1.0, 1.1, 1.2, 1.3])
    assert four.pairs == 0
    assert four.interval is not None
    assert four.differs is True
    two = ratio_of([2.0, 2.1], [1.0, 1.1])
    assert two.interval is None
    assert two.differs is None
    assert two.value == pytest.approx(1.95, abs=0.1)


def test_the_run_that_stands_out_is_named_and_small_noise_is_not() -> None:
    assert outliers([1.00, 1.01, 0.99, 1.005, 3.0, 0.995]) == [4]
    assert outliers([1.0, 1.0, 1.0, 1.0, 1.001]) == []
    assert outliers([1.0, 9.0, 1.0]) == []  # three runs cannot tell which of them is odd


def test_pairs_have_to_be_pairs() -> None:
    with pytest.raises(ValueError, match="as many"):
        paired_ratio([1.0], [1.0, 2.0])
