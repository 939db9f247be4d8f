"""The live line never wraps and never lets a job's name move the cursor."""

import pytest
from msgspec import structs

from joblens.model.jobs.sample import Sample
from joblens.views.jobs.live_line import render_live_line
from joblens.views.text.style import visible_width
from tests.builders.gpu_job import gpu_samples


def samples(count: int) -> list[Sample]:
    return [
        Sample(
            at_us=second * 1_000_000,
            elapsed_us=second * 1_000_000,
            cpu_total_usec=second * 500_000,
            memory_anon_bytes=second * 10 * 1024**2,
            io_read_bytes=second * 1024**2,
            io_write_bytes=0,
            processes=3,
        )
        for second in range(count)
    ]


def test_the_line_tells_time_cpu_memory_io_processes_and_a_spark_line() -> None:
    line = render_live_line("train", samples(8), 100, color=False)
    assert line == "train  00:07  cpu  50%  mem 70.0M  rd  1.0M/s  wr    0B/s  3 procs  ▅▅▅▅▅▅▅"


@pytest.mark.parametrize("width", range(1, 130))
def test_the_line_is_narrower_than_the_terminal(width: int) -> None:
    for count in (0, 1, 2, 30):
        line = render_live_line(
            "a name that is quite a bit longer than usual", samples(count), width, color=True
        )
        assert visible_width(line) < width


def test_before_the_second_sample_rates_are_unknown_and_not_zero() -> None:
    line = render_live_line("train", samples(1), 100, color=False)
    assert "cpu    -" in line
    assert "rd" not in line


def test_control_characters_in_a_name_do_not_reach_the_terminal() -> None:
    line = render_live_line("evil\x1b[2J\r\n", samples(3), 100, color=False)
    assert "evil" in line
    assert "\x1b" not in line
    assert "\n" not in line
    assert "\r" not in line


def test_wide_characters_count_as_two_columns() -> None:
    line = render_live_line("学習" * 20, samples(3), 60, color=False)
    assert visible_width(line) < 60


def test_network_and_gpu_are_reported_where_there_is_something() -> None:
    line = render_live_line("train", gpu_samples(5), 120, color=False)
    assert "gpu  73%  2.1G" in line
    assert "net in+out 15.2M/s" in line


def test_a_job_without_network_and_gpu_has_no_place_for_them() -> None:
    quiet = [
        structs.replace(sample, network_rx_bytes=0, network_tx_bytes=0, gpus={}) for sample in samples(5)
    ]
    line = render_live_line("train", quiet, 120, color=False)
    assert "cpu" in line
    assert "net" not in line
    assert "gpu" not in line


@pytest.mark.parametrize("width", range(1, 130))
def test_the_line_with_network_and_gpu_is_narrower_than_the_terminal(width: int) -> None:
    assert visible_width(render_live_line("train", gpu_samples(5), width, color=True)) < width
