"""Spark lines and curves: no spike is lost, unknown is a gap and not a zero."""

from hypothesis import given
from hypothesis import strategies as st

from joblens.views.text.charts import braille_chart, nice_top, nice_top_binary, resample, spark_line


def test_a_spark_line_rises_from_the_lowest_to_the_highest_block() -> None:
    assert spark_line([0, 50, 100], 10) == "▁▅█"


def test_a_spark_line_shows_the_last_values_that_fit() -> None:
    assert spark_line([100, 100, 0, 100], 2) == "▁█"


def test_an_unknown_value_is_a_gap_in_the_spark_line() -> None:
    assert spark_line([100, None, 100], 10) == "█ █"


def test_a_spark_line_of_nothing_but_zeros_is_flat() -> None:
    assert spark_line([0, 0], 10) == "▁▁"


def test_a_spike_between_many_readings_survives_the_resampling() -> None:
    times = [float(second) for second in range(1000)]
    values: list[float | None] = [1.0] * 1000
    values[437] = 99.0
    assert max(value for value in resample(times, values, 20) if value is not None) == 99.0


def test_a_reading_stands_for_the_time_since_the_one_before() -> None:
    assert resample([0.0, 10.0], [1.0, 2.0], 5) == [1.0, 2.0, 2.0, 2.0, 2.0]


def test_an_unknown_reading_leaves_a_gap() -> None:
    slices = resample([0.0, 1.0, 2.0, 3.0], [None, 5.0, None, 6.0], 8)
    assert slices == [None, 5.0, 5.0, None, None, None, 6.0, 6.0]


def test_a_chart_has_its_axis_ends_and_as_many_lines_as_asked() -> None:
    lines = braille_chart(
        [0.0, 1.0, 2.0], [0.0, 50.0, 100.0], width=20, height=4, top=100.0, axis=lambda value: f"{value:.0f}%"
    )
    assert len(lines) == 4
    assert lines[0].startswith("100% ┤")
    assert lines[-1].startswith("  0% ┤")
    assert max(len(line) for line in lines) == 20


def test_zero_is_drawn_and_unknown_is_not() -> None:
    zero, unknown = (
        braille_chart([0.0, 1.0], values, width=10, height=1, top=1.0, axis=str)[0]
        for values in ([0.0, 0.0], [None, None])
    )
    assert zero.split("┤")[1].strip()
    assert not unknown.split("┤")[1].strip()


@given(st.floats(min_value=1e-6, max_value=1e15))
def test_the_axis_ends_at_or_above_the_highest_value_and_not_far_above(highest: float) -> None:
    assert highest <= nice_top(highest) * 1.0000001
    assert nice_top(highest) <= highest * 2.6
    assert highest <= nice_top_binary(highest) <= max(1024, highest * 2)
