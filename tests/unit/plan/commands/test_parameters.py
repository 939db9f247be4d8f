"""Parameters as written, and the values they stand for."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joblens.model.runs.workflow_spec import ParameterMode
from joblens.plan.commands.parameters import BadParameter, combinations, rows_of, values_of


@pytest.mark.parametrize(
    ("written", "values"),
    [
        ("1:4", [1, 2, 3, 4]),
        ("0:10:5", [0, 5, 10]),
        ("0:9:5", [0, 5]),
        ("10:1:-4", [10, 6, 2]),
        ("-2:2:2", [-2, 0, 2]),
        ("3:3", [3]),
        ("0:1:0.25", [0.0, 0.25, 0.5, 0.75, 1.0]),
        ("0:0.5:0.1", [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]),
        ("1.0:0.5:-0.25", [1.0, 0.75, 0.5]),
        ("{1:3}", [1, 2, 3]),
        ("[1, 2]", [1, 2]),
        ("['a', 'b,c']", ["a", "b,c"]),
        ('["x"]', ["x"]),
        ("[0.1,0.01,1e-3]", [0.1, 0.01, 0.001]),
        ("[a, b]", ["a", "b"]),
        ("['1', 2]", ["1", 2]),
        ("5", [5]),
        ("0.5", [0.5]),
        ("adam", ["adam"]),
        ("s3://bucket/x", ["s3://bucket/x"]),
        ("007", ["007"]),
        ("3.10", ["3.10"]),
        (7, [7]),
        (0.5, [0.5]),
        (True, ["true"]),
        ([1, "a", 2.5], [1, "a", 2.5]),
        (["1", "007"], ["1", "007"]),
        ("@names.txt", ["ana", 3]),
        ("{@names.txt}", ["ana", 3]),
    ],
)
def test_what_is_written_stands_for_values(written: Any, values: list[Any]) -> None:
    found = values_of(written, {"@names.txt": ["ana", "3"]})
    assert found == values
    assert [type(value) for value in found] == [type(value) for value in values]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("1:10:0", "the step of '1:10:0' is 0"),
        ("10:1", "has no values; write 10:1:-1 to count down"),
        ("1:10:-1", "has no values"),
        ("1:x", "is not a range"),
        ("1:2:3:4", "is not a range"),
        ("[1, 2", "does not end with ']'"),
        ("[1,,2]", "empty item"),
        ("['a' 'b']", "is not a list"),
        ("[]", "has no values"),
        ([], "the list is empty"),
        ([[1]], "must be a number or text, not a list"),
        (None, "not nothing"),
        ("@gone.txt", "was not read|were not read"),
        ("0:1:0.000000001", "more than 2,000,000 values"),
        ("1:1e12", "more than 2,000,000 values"),
    ],
)
def test_what_stands_for_nothing_says_why(written: Any, message: str) -> None:
    with pytest.raises(BadParameter, match=message.replace("[", r"\[")):
        values_of(written, {})


@given(st.integers(-50, 50), st.integers(-50, 50), st.integers(-7, 7).filter(bool))
def test_a_range_is_inclusive_and_keeps_its_direction(first: int, last: int, step: int) -> None:
    expected = list(range(first, last + (1 if step > 0 else -1), step))
    if expected:
        assert values_of(f"{first}:{last}:{step}", {}) == expected
    else:
        with pytest.raises(BadParameter):
            values_of(f"{first}:{last}:{step}", {})


@given(st.dictionaries(st.sampled_from("abcd"), st.lists(st.integers(), min_size=1, max_size=4)))
def test_in_a_product_the_last_parameter_varies_fastest(values: dict[str, list[int]]) -> None:
    assert list(combinations(values, ParameterMode.PRODUCT)) == list(itertools.product(*values.values()))


def test_zip_takes_the_first_of_each_then_the_second() -> None:
    assert list(combinations({"a": [1, 2], "b": ["x", "y"]}, ParameterMode.ZIP)) == [(1, "x"), (2, "y")]


def test_zip_needs_equally_many_of_each() -> None:
    with pytest.raises(BadParameter, match="a has 2, b has 1"):
        combinations({"a": [1, 2], "b": [1]}, ParameterMode.ZIP)


def test_too_many_combinations_are_refused_before_they_are_made() -> None:
    many = list(range(10_000))
    with pytest.raises(BadParameter, match="100,000,000 combinations"):
        combinations({"a": many, "b": many}, ParameterMode.PRODUCT)


def test_a_table_gives_names_and_typed_rows() -> None:
    assert rows_of([{"id": "007", "x": "1.5"}, {"x": "2", "id": "b"}]) == (
        ("id", "x"),
        [("007", 1.5), ("b", 2)],
    )


def test_rows_must_have_the_same_columns() -> None:
    with pytest.raises(BadParameter, match="row 2 of the table differs from the first in 'b'"):
        rows_of([{"a": 1, "b": 2}, {"a": 1}])
