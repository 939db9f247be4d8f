"""Amounts in the way a file has them."""

import pytest

from joblens.analysis.sizing.amounts import memory_like, runtime_like
from joblens.model.values.units import MIB, parse_duration, parse_size


@pytest.mark.parametrize(
    ("written", "megabytes", "text"),
    [
        ("1024m", 2048, "2048m"),
        ("4g", 8192, "8g"),
        ("4g", 256, "256m"),
        ("4G", 256, "256M"),
        ("4 GiB", 256, "256 MiB"),
        ("1.5GB", 12288, "12GB"),
        (1073741824, 256, "268435456"),
        ("1073741824", 256, "268435456"),
    ],
)
def test_memory_keeps_its_unit(written: str | int, megabytes: int, text: str) -> None:
    assert memory_like(written, megabytes * MIB) == text
    assert parse_size(text) == megabytes * MIB


@pytest.mark.parametrize(
    ("written", "seconds", "text"),
    [
        ("10m", 20, "20s"),
        ("PT10M", 20, "PT20S"),
        ("1h", 5400, "1h30m"),
        ("1h 30m", 5400, "1h 30m"),
        ("90s", 90000, "1d1h"),
        (600, 20, "20"),
        ("600", 20, "20"),
    ],
)
def test_runtime_keeps_its_form(written: str | int, seconds: int, text: str) -> None:
    assert runtime_like(written, seconds) == text
    assert parse_duration(text) == seconds
