import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from joblens.data.texts.duplicates import alone, first_of_cluster, join

PAIRS = st.lists(st.tuples(st.integers(0, 29), st.integers(0, 29)), max_size=60)


def by_walking(pairs: list[tuple[int, int]]) -> list[int]:
    first = list(range(30))
    for _ in first:
        for left, right in pairs:
            first[left] = first[right] = min(first[left], first[right])
    return first


@settings(deadline=None)
@given(PAIRS, PAIRS)
def test_rows_that_are_joined_in_any_order_have_the_first_of_them_all(
    some: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    parents = np.zeros(30, np.uint32)
    alone(parents)
    for pairs in (some, others):
        left, right = (np.array([pair[side] for pair in pairs], np.int64) for side in (0, 1))
        join(parents, left, right)
    assert first_of_cluster(parents, np.arange(30)).tolist() == by_walking([*some, *others])


def test_a_long_chain_is_one_cluster() -> None:
    parents = np.zeros(100_000, np.uint32)
    alone(parents)
    join(parents, np.arange(1, 100_000), np.arange(99_999))
    assert not first_of_cluster(parents, np.arange(100_000)).any()
