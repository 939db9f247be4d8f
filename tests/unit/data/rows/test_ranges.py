"""Which numbers lie in a filter's range."""

from typing import Any

import pyarrow as pa
import pytest

from joblens.data.base.operator import Filter
from joblens.data.rows.ranges import as_compared, within


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
def test_bounds_are_within_unless_reported_otherwise(settings: dict[str, bool], kept: list[int]) -> None:
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


def test_doubles_are_compared_with_ten_digits_and_everything_else_as_it_is() -> None:
    doubles = [
        1 / 3,
        2 / 3,
        0.3,
        0.25,
        12.5,
        0.99999999999,
        0.0,
        7.00000000004,
        None,
        float("inf"),
        float("nan"),
    ]
    stats = as_compared({"ratio": pa.array(doubles), "count": pa.array([1, None])})
    found = stats["ratio"].to_pylist()
    assert found[:10] == [
        0.33333333330000003,
        0.6666666667000001,
        0.30000000000000004,
        0.25,
        12.5,
        1.0,
        0.0,
        7.0,
        None,
        float("inf"),
    ]
    assert found[10] != found[10]
    assert stats["count"].to_pylist() == [1, None]
