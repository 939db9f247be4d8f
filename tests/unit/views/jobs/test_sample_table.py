"""Samples as a table: what each line has, and from when its rates are."""

from msgspec import structs

from joblens.model.jobs.sample import Sample
from joblens.views.jobs.metrics import SampleTable
from joblens.views.text.style import PLAIN
from tests.builders.gpu_job import gpu_samples
from tests.builders.past_jobs import MIB
from tests.builders.records import START_US


def a_sample(at_ms: int, **numbers: int | None) -> Sample:
    known = {"cpu_total_usec": 0, "memory_anon_bytes": MIB, **numbers}
    return structs.replace(Sample(at_us=START_US + at_ms * 1000, elapsed_us=at_ms * 1000), **known)


def rows(*samples: Sample, interval_s: float = 1.0, has_gpu: bool = False) -> list[list[str]]:
    table = SampleTable(PLAIN, interval_s=interval_s, has_gpu=has_gpu)
    return [line.split() for sample in samples for line in table.lines(sample)]


def test_the_first_line_has_no_rates_and_the_next_those_of_the_time_between() -> None:
    first = a_sample(0, io_read_bytes=0, io_write_bytes=0, network_rx_bytes=0, network_tx_bytes=0)
    second = a_sample(
        2000,
        cpu_total_usec=1_000_000,
        io_read_bytes=4 * MIB,
        io_write_bytes=0,
        network_rx_bytes=2 * MIB,
        network_tx_bytes=MIB,
    )
    _, *lines = rows(first, second)
    assert lines[0] == ["10:30:00", "-", "1.0M", "-", "-", "-", "-"]
    assert lines[1] == ["10:30:02", "50%", "1.0M", "2.0M", "0B", "1.0M", "512K"]


def test_a_counter_that_was_left_out_once_is_measured_from_when_it_was_read() -> None:
    _, _, between, later = rows(
        a_sample(0, io_read_bytes=0), a_sample(1000), a_sample(2000, io_read_bytes=4 * MIB)
    )
    assert (between[3], later[3]) == ("-", "2.0M")


def test_a_sample_right_after_another_makes_no_spike() -> None:
    _, *lines = rows(
        a_sample(0),
        a_sample(1000, cpu_total_usec=100_000),
        a_sample(1003, cpu_total_usec=110_000),
        a_sample(2000, cpu_total_usec=200_000),
    )
    assert [line[1] for line in lines] == ["-", "10%", "-", "10%"]


def test_where_devices_tell_nothing_the_calls_do() -> None:
    _, _, later = rows(a_sample(0, io_call_read_bytes=0), a_sample(1000, io_call_read_bytes=MIB))
    assert later[3] == "1.0M"


def test_a_gpu_that_shows_up_later_brings_its_columns() -> None:
    first, *others = gpu_samples(3)
    lines = rows(structs.replace(first, gpus=None), *others)
    titles = [line for line in lines if line[0] == "TIME"]
    assert ["GPU" in line for line in titles] == [False, True]


def test_samples_within_a_second_have_tenths() -> None:
    _, first, second = rows(a_sample(0), a_sample(500), interval_s=0.5)
    assert (first[0], second[0]) == ("10:30:00.0", "10:30:00.5")


def test_what_is_passed_over_is_what_the_next_is_measured_from() -> None:
    table = SampleTable(PLAIN, interval_s=1.0, has_gpu=False)
    table.skip(a_sample(0))
    _, line = table.lines(a_sample(1000, cpu_total_usec=500_000))
    assert line.split()[1] == "50%"
