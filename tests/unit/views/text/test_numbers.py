"""Unknown is a dash, a lower bound is marked, and nothing grows wider than its column."""

import pytest

from joblens.views.text.numbers import (
    clock,
    compact_bytes,
    grams,
    joules,
    mark_bound,
    percent,
    rate,
    seconds,
    watts,
)


def test_unknown_is_a_dash_everywhere() -> None:
    known = (seconds, percent, compact_bytes, rate, joules, watts, grams)
    assert {show(None) for show in known} == {"-"}


def test_a_lower_bound_is_marked_and_unknown_is_not() -> None:
    assert mark_bound("5.0 GiB", is_lower_bound=True) == "≥5.0 GiB"
    assert mark_bound("-", is_lower_bound=True) == "-"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0B"),
        (1023, "1023B"),
        (1024, "1.0K"),
        (1024**2 - 1, "1.0M"),
        (150 * 1024**2, "150M"),
        (2**60, "1024P"),
    ],
)
def test_bytes_are_compact(count: int, text: str) -> None:
    assert compact_bytes(count) == text


def test_compact_bytes_need_at_most_five_columns() -> None:
    assert max(len(compact_bytes(2**power * step / 10)) for power in range(50) for step in range(1, 20)) <= 5


def test_small_shares_keep_a_decimal() -> None:
    assert [percent(0), percent(0.42), percent(9.96), percent(250.4)] == ["0%", "0.4%", "10.0%", "250%"]


def test_a_running_clock_keeps_its_width() -> None:
    assert [clock(7.9), clock(754), clock(3723)] == ["00:07", "12:34", "1:02:03"]


@pytest.mark.parametrize(
    ("microjoules", "text"),
    [
        (0, "0.0 J"),
        (999_900_000, "999.9 J"),
        (999_960_000, "1.0 kJ"),
        (3_599e9, "3599.0 kJ"),
        (3.6e12, "1.00 kWh"),
    ],
)
def test_energy_is_reported_in_what_fits(microjoules: float, text: str) -> None:
    assert joules(microjoules) == text


@pytest.mark.parametrize(
    ("milligrams", "text"), [(290, "290 mg"), (950, "0.9 g"), (12_340, "12.3 g"), (1_000_000, "1.00 kg")]
)
def test_weights_are_reported_in_what_fits(milligrams: int, text: str) -> None:
    assert grams(milligrams) == text
