"""Amounts a person would write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joblens.analysis.sizing.amounts import cpus_for, memory_for, memory_text, runtime_for, runtime_text
from joblens.model.values.units import GIB, MIB, parse_duration, parse_size


@pytest.mark.parametrize(
    ("peak_mib", "written"),
    [(10.5 * 1024, "12g"), (2150, "2560m"), (540, "640m"), (100, "112m"), (0.3, "16m"), (100 * 1024, "112g")],
)
def test_memory_is_the_roundest_amount_above_the_peak(peak_mib: float, written: str) -> None:
    assert memory_text(memory_for(peak_mib * MIB)) == written


@pytest.mark.parametrize(
    ("longest_s", "written"),
    [(9900, "PT3H30M"), (9000, "PT3H"), (0.05, "PT20S"), (450, "PT9M"), (100, "PT2M"), (80000, "P1DT2H")],
)
def test_runtime_is_the_roundest_amount_above_the_longest(longest_s: float, written: str) -> None:
    assert runtime_text(runtime_for(longest_s)) == written


@given(st.integers(1, 2**50))
def test_memory_is_ten_to_twenty_percent_above_any_peak(peak: int) -> None:
    size = memory_for(peak)
    assert size >= 1.1 * peak
    assert size <= max(1.2 * peak, peak + 16 * MIB) + MIB


@given(st.floats(0.001, 1e7))
def test_runtime_is_fifteen_to_thirty_percent_above_any_time(seconds: float) -> None:
    limit_s = runtime_for(seconds)
    assert limit_s >= 1.15 * seconds
    assert limit_s <= max(1.3 * seconds, seconds + 20) + 1


@pytest.mark.parametrize(("peak", "cores"), [(0.0, 1), (0.99, 1), (1.05, 1), (1.2, 2), (9.505, 10)])
def test_cpus_are_whole_ones(peak: float, cores: int) -> None:
    assert cpus_for(peak) == cores


@given(st.integers(1, 2**50))
def test_written_memory_reads_back(size: int) -> None:
    assert parse_size(memory_text(size)) == size


@given(st.integers(1, 10**7))
def test_written_runtime_reads_back(seconds: int) -> None:
    assert parse_duration(runtime_text(seconds)) == seconds


def test_a_size_that_is_no_whole_unit_is_written_in_the_next_smaller_one() -> None:
    assert [memory_text(size) for size in (GIB, 1536 * MIB, 1536 * 1024, 100)] == [
        "1g",
        "1536m",
        "1536k",
        "100",
    ]
