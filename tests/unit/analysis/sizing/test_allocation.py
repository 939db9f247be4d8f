"""First tries, compared on jobs that were seen."""

from hypothesis import given
from hypothesis import strategies as st

from joblens.analysis.sizing.amounts import memory_for
from joblens.analysis.sizing.observations import Need, Strategy, compare, evaluate
from joblens.model.values.units import GIB, MIB

needs_seen = st.lists(st.builds(Need, st.integers(1, 2**40), st.floats(0.1, 1e5)), min_size=1, max_size=30)


def by_strategy(needs: list[Need]) -> dict[Strategy, tuple[int, float]]:
    return {option.strategy: (option.first_bytes, option.retries) for option in compare(needs)}


def test_without_observations_there_is_nothing_to_compare() -> None:
    assert compare([]) == ()


def test_one_large_job_among_many_small_ones_is_worth_a_retry() -> None:
    needs = [Need(1 * GIB, 100.0)] * 99 + [Need(64 * GIB, 100.0)]
    found = by_strategy(needs)
    assert found[Strategy.MAX_SEEN] == (memory_for(64 * GIB), 0.0)
    assert found[Strategy.MIN_WASTE] == (memory_for(1 * GIB), 0.01)
    assert found[Strategy.MAX_THROUGHPUT] == (memory_for(1 * GIB), 0.01)


def test_jobs_that_are_nearly_alike_are_not_tried_twice() -> None:
    needs = [Need((1000 + place) * MIB, 100.0) for place in range(10)]
    assert {retries for _, retries in by_strategy(needs).values()} == {0.0}


def test_throughput_and_waste_can_want_different_sizes() -> None:
    """Most jobs are small and short: trying the long ones twice costs more than it gains in memory, but
    more of the small ones run side by side."""
    needs = [Need(1 * GIB, 1.0)] * 9 + [Need(8 * GIB, 30.0)] * 4
    found = by_strategy(needs)
    assert found[Strategy.MAX_THROUGHPUT][0] == memory_for(1 * GIB)
    assert found[Strategy.MIN_WASTE][0] == memory_for(8 * GIB)


def test_waste_counts_lost_tries_and_spare_memory() -> None:
    needs = [Need(1 * GIB, 10.0), Need(3 * GIB, 10.0)]
    found = evaluate(Strategy.MIN_WASTE, needs, 2 * GIB, 4 * GIB)
    # the small one leaves 1 GiB, the large one loses a try of 2 GiB and leaves 1 GiB
    assert found.waste_byte_s == (1 + 2 + 1) * 10 * GIB / 2
    assert found.retries == 0.5
    assert found.waste_percent == 100 * 4 / 8


@given(needs_seen)
def test_each_strategy_is_the_best_of_all_sizes_that_could_be_written(needs: list[Need]) -> None:
    chosen = {option.strategy: option for option in compare(needs)}
    retry = chosen[Strategy.MAX_SEEN].first_bytes
    all_ = [evaluate(Strategy.MIN_WASTE, needs, memory_for(need.memory_bytes), retry) for need in needs]
    assert chosen[Strategy.MIN_WASTE].waste_byte_s == min(one.waste_byte_s for one in all_)
    assert chosen[Strategy.MAX_THROUGHPUT].throughput == max(one.throughput for one in all_)


@given(needs_seen)
def test_max_seen_never_needs_a_retry_and_no_strategy_asks_for_more(needs: list[Need]) -> None:
    found = compare(needs)
    assert found[0].retries == 0
    assert all(option.first_bytes <= found[0].first_bytes for option in found)
    assert all(option.waste_percent >= 0 for option in found)
