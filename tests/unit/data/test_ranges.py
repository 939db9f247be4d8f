"""Which numbers lie in a filter's range."""

from typing import Any

import pyarrow as pa
import pytest

from joblens.data.operator import Filter
from joblens.data.ranges import within


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({}, [2, 3, 4]),
        ({"min_closed_interval": False}, [3, 4]),
        ({"max_closed_interval": False}, [2, 3]),
        ({"reversed_range": True}, [1, 2, 4, 5]),
        ({"reversed_range": True, "min_closed_interval": False, "max_closed_interval": False}, [1, 5]),
    ],
)
def test_bounds_are_within_unless_told_otherwise(settings: dict[str, bool], kept: list[int]) -> None:
    operator = Filter()
    for name, value in settings.items():
        setattr(operator, name, value)
    numbers = pa.array([1, 2, 3, 4, 5])
    assert numbers.filter(within(operator, numbers, 2, 4)).to_pylist() == kept


@pytest.mark.parametrize(
    ("low", "high", "kept"), [(None, 2, [1, 2]), (2, None, [2, 3]), (None, None, [1, 2, 3])]
)
def test_a_range_may_have_one_bound_or_none(low: Any, high: Any, kept: list[int]) -> None:
    numbers = pa.array([1, 2, 3])
    assert numbers.filter(within(Filter(), numbers, low, high)).to_pylist() == kept


def test_a_number_that_is_missing_is_in_no_range() -> None:
    found = within(Filter(), pa.array([1.0, None, float("nan")]), 0, 5)
    assert found.to_pylist() == [True, False, False]
