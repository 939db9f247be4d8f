"""Times, memory and generic resources as sbatch writes them."""

import pytest

from joblens.model.clusters.slurm_notation import (
    format_memory,
    format_walltime,
    gpus_in,
    parse_memory,
    parse_walltime,
    slurm_bytes,
    slurm_clock,
    slurm_seconds,
    with_gpus,
)
from joblens.model.errors import InputError
from joblens.model.values.units import GIB, MIB


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400),
        ("90:30", 5430),
        ("01:30:00", 5400),
        ("2-12", 216000),
        ("2-12:30", 217800),
        ("1-00:00:01", 86401),
    ],
)
def test_every_way_to_write_a_walltime_is_read_as_sbatch_does(text: str, seconds: float) -> None:
    assert parse_walltime(text) == seconds


def test_no_limit_is_none() -> None:
    assert parse_walltime("UNLIMITED") is None


def test_what_is_no_walltime_is_refused_with_a_way_to_write_it() -> None:
    with pytest.raises(InputError) as caught:
        parse_walltime("1h")
    assert "HOURS:MINUTES:SECONDS" in caught.value.hint


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1, "00:01:00"), (61, "00:02:00"), (3600, "01:00:00"), (86400, "1-00:00:00"), (90061, "1-01:02:00")],
)
def test_walltimes_are_whole_minutes_rounded_up(seconds: float, text: str) -> None:
    assert format_walltime(seconds) == text
    assert (parse_walltime(text) or 0) >= seconds


def test_bare_memory_is_mebibytes() -> None:
    assert parse_memory("4000") == 4000 * MIB
    assert parse_memory("180G") == 180 * GIB
    assert parse_memory("512k") == 512 * 1024


def test_memory_is_rounded_up_to_whole_mebibytes() -> None:
    assert format_memory(GIB + 1) == "1025M"
    assert format_memory(1) == "1M"


@pytest.mark.parametrize(
    ("gres", "count"),
    [("gpu:2", 2), ("gpu:a100:4(S:0-1)", 4), ("gpu", 1), ("shard:4,gpu:1", 1), ("(null)", 0), ("", 0)],
)
def test_gpus_are_counted_among_generic_resources(gres: str, count: int) -> None:
    assert gpus_in(gres) == count


def test_a_job_gets_its_own_number_of_gpus_of_the_kind_that_was_written() -> None:
    assert with_gpus("gpu:a100:4,shard:2", 1) == "gpu:a100:1,shard:2"
    assert with_gpus("gpu:4", 2) == "gpu:2"
    assert with_gpus("", 2) == "gpu:2"
    assert with_gpus("gpu:4", 0) == ""


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:03.163", 3.163),
        ("01:02:03", 3723.0),
        ("1-02:03:04", 93784.0),
        ("2-03", 183600.0),
        ("2-03:30", 185400.0),
        ("59", 59.0),
        ("UNLIMITED", None),
        ("Partition_Limit", None),
        ("", None),
        ("INVALID", None),
    ],
)
def test_durations_are_read_in_every_form_that_slurm_writes(text: str, seconds: float | None) -> None:
    assert slurm_seconds(text) == seconds


@pytest.mark.parametrize("seconds", [0, 59, 60, 3600, 86399, 86400, 93784, 10 * 86400])
def test_a_duration_that_is_written_reads_the_same(seconds: int) -> None:
    assert slurm_seconds(slurm_clock(seconds)) == seconds


@pytest.mark.parametrize(
    ("text", "unit", "size"),
    [
        ("91596K", "", 91596 * 1024),
        ("1.50G", "", 3 * 2**29),
        ("200", "M", 200 * 2**20),
        ("0", "", 0),
        ("16?", "M", None),
        ("", "M", None),
    ],
)
def test_sizes_have_units_of_1024(text: str, unit: str, size: int | None) -> None:
    assert slurm_bytes(text, unit) == size
