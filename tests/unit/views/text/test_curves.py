from typing import Any

from joblens.model.jobs.sample import Sample
from joblens.views.text.charts import last_known, points

MIB = 1 << 20


def sample(second: float, **fields: Any) -> Sample:
    return Sample(at_us=0, elapsed_us=round(second * 1_000_000), **fields)


def test_the_first_point_has_no_rate() -> None:
    curve = points([sample(0, io_read_bytes=0), sample(1, io_read_bytes=MIB)])
    assert [point.read_per_s for point in curve] == [None, MIB]


def test_a_counter_read_now_and_then_is_spread_over_the_samples_between() -> None:
    readings = [0, None, None, 6 * MIB, None]
    curve = points([sample(second, io_write_bytes=read) for second, read in enumerate(readings)])
    assert [point.write_per_s for point in curve] == [None, 2 * MIB, 2 * MIB, 2 * MIB, None]


def test_calls_stand_in_where_devices_are_unknown() -> None:
    curve = points([sample(0, io_call_read_bytes=0), sample(2, io_call_read_bytes=MIB)])
    assert curve[1].read_per_s == MIB / 2
    assert curve[1].io_per_s == MIB / 2


def test_a_counter_that_went_backwards_has_no_rate() -> None:
    curve = points([sample(0, cpu_total_usec=500_000), sample(1, cpu_total_usec=0)])
    assert curve[1].cpu_percent is None


def test_no_samples_have_no_points() -> None:
    assert points([]) == []


def test_what_stands_is_the_last_number_that_was_read() -> None:
    assert last_known([None, 3, 5, None]) == 5
    assert last_known([None]) is None
