import pytest

from joblens.analysis.numbers.attribution import with_co2
from joblens.analysis.numbers.rates import NO_GRID_FACTOR, NOT_MEASURED
from joblens.model.jobs.job import USAGE_NUMBERS, Usage
from joblens.views.jobs.history import exact_memory
from joblens.views.jobs.labels import compact_memory
from joblens.views.jobs.resources import USAGE_NUMBERS as VIEW_NUMBERS
from joblens.views.jobs.resources import render_usage
from joblens.views.text.style import PLAIN

MIB = 1 << 20


@pytest.mark.parametrize(("largest", "is_explained"), [(9 * MIB, True), (2 * MIB, False), (MIB, False)])
def test_a_process_larger_than_the_memory_peak_is_explained(largest: int, is_explained: bool) -> None:
    usage = Usage(
        memory_peak_bytes=2 * MIB,
        memory_largest_process_bytes=largest,
        sources={"memory_peak": "memory.peak", "memory_largest_process": "wait4 rusage"},
    )
    (line,) = [line for line in render_usage(usage, 1.0, 120, PLAIN) if "largest process" in line]
    assert "wait4 rusage" in line
    assert ("includes shared libraries" in line) is is_explained


def test_what_nobody_looked_at_is_not_listed_as_unknown_and_what_could_not_be_read_is() -> None:
    usage = Usage(unknown={"gpu_busy_usec": NOT_MEASURED, "network_rx_bytes": "not permitted"})
    text = "\n".join(render_usage(usage, 1.0, 120, PLAIN))
    assert "GPU" not in text
    assert "unknown: received (not permitted)" in text


def test_a_job_that_used_no_gpu_has_no_lines_about_gpus() -> None:
    usage = Usage(gpu_memory_peak_bytes=0, gpu_busy_usec=0, network_rx_bytes=0)
    text = "\n".join(render_usage(usage, 1.0, 120, PLAIN))
    assert "GPU" not in text
    assert "received" in text


@pytest.mark.parametrize(("energy", "is_reported"), [(None, False), (5_000_000, True)])
def test_why_co2_is_not_known_is_reported_where_energy_is(energy: int | None, is_reported: bool) -> None:
    usage = Usage(energy_package_uj=energy, unknown={"co2_mg": NO_GRID_FACTOR})
    assert ("grid factor" in "\n".join(render_usage(usage, 1.0, 120, PLAIN))) is is_reported


def test_who_has_set_a_grid_factor_learns_why_there_is_no_co2() -> None:
    usage = with_co2(Usage(unknown={"energy_package_uj": "no RAPL"}), 380)
    text = "\n".join(render_usage(usage, 1.0, 120, PLAIN))
    assert "unknown: CO2 (its energy is unknown)" in text


def test_every_number_of_a_usage_has_a_line() -> None:
    assert set(VIEW_NUMBERS) == set(USAGE_NUMBERS)


def test_a_sum_of_rss_is_named_so_and_is_no_memory_peak() -> None:
    usage = Usage(memory_rss_sum_peak_bytes=3 << 30)
    assert compact_memory(usage) == "3.0G RSS sum"
    assert exact_memory(usage) == "unknown (peak of summed RSS: 3072.00 MB)"
    (line,) = [line for line in render_usage(usage, 1.0, 120, PLAIN) if "GiB" in line]
    assert line.split() == ["peak", "of", "summed", "RSS", "3.0", "GiB"]
    assert "memory peak" not in "\n".join(render_usage(usage, 1.0, 120, PLAIN))
