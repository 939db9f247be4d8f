from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joblens.model.errors import InputError
from joblens.model.values.units import (
    GIB,
    KIB,
    MIB,
    format_bytes,
    format_duration,
    format_instant,
    in_gb,
    in_mb,
    parse_duration,
    parse_instant,
    parse_size,
    small_memory,
)

NOW_US = 1_760_524_200_000_000  # 2025-10-15T10:30:00Z


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        ("512m", 512 * MIB),
        ("2g", 2 * GIB),
        ("2G", 2 * GIB),
        ("1.5GiB", 1536 * MIB),
        ("1k", KIB),
        ("1 MB", MIB),
        ("10b", 10),
        ("0", 0),
    ],
)
def test_sizes_are_read_in_powers_of_1024(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "m", "-1g", "1x", "1..5g", "ten", "1g 2m", "nan", "inf"])
def test_what_is_no_size_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(InputError, match="is not a size") as refused:
        parse_size(text)
    assert "512m" in refused.value.hint


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("0.5", 0.5),
        ("90s", 90),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("500ms", 0.5),
        ("2d", 172800),
        ("PT2H", 7200),
        ("P1DT1S", 86401),
        ("pt1.5m", 90),
        ("250us", 0.00025),
    ],
)
def test_durations_are_read_in_the_forms_people_write(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "-5", "inf", "nan", "5x", "1h junk", "junk 1h", "PT", "P", "m"])
def test_what_is_no_duration_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(InputError, match="is not a duration") as refused:
        parse_duration(text)
    assert "1h30m" in refused.value.hint


@pytest.mark.parametrize(
    ("text", "at_us"),
    [
        ("2025-10-15T10:30:00+00:00", NOW_US),
        ("2025-10-15T10:30:00Z", NOW_US),
        ("2025-10-15T12:30:00+02:00", NOW_US),
        ("2025-10-15T10:30:00.000001", NOW_US + 1),  # naive: UTC
        ("2025-10-15", NOW_US - 37_800_000_000),
        ("2h", NOW_US - 7_200_000_000),
        ("7d", NOW_US - 604_800_000_000),
    ],
)
def test_instants_are_iso_times_or_ages(text: str, at_us: int) -> None:
    assert parse_instant(text, NOW_US) == at_us


def test_what_is_no_time_is_refused_with_a_hint() -> None:
    with pytest.raises(InputError, match="'yesterday' is not a time") as refused:
        parse_instant("yesterday", NOW_US)
    assert "7d" in refused.value.hint


@given(st.integers(0, 4_102_444_800_000_000))
def test_an_instant_written_is_read_back_exactly(at_us: int) -> None:
    assert parse_instant(format_instant(at_us), 0) == at_us


def test_an_instant_is_written_with_offset_and_microseconds() -> None:
    assert format_instant(NOW_US + 7) == "2025-10-15T10:30:00.000007+00:00"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "-"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (MIB - 1, "1.0 MiB"),
        (1536 * MIB, "1.5 GiB"),
        (5 * 1024**4, "5.0 TiB"),
    ],
)
def test_sizes_are_shown_in_the_largest_fitting_unit(count: int | None, text: str) -> None:
    assert format_bytes(count) == text


@given(st.integers(0, 2**50))
def test_no_size_is_shown_as_1024_of_a_unit(count: int) -> None:
    assert not format_bytes(count).startswith("1024.")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.0, "0ms"),
        (0.25, "250ms"),
        (0.9999, "1.0s"),
        (12.34, "12.3s"),
        (59.99, "1m00s"),
        (330.12, "5m30s"),
        (3600, "1h00m00s"),
        (90061, "25h01m01s"),
    ],
)
def test_durations_are_shown_as_people_read_them(seconds: float | None, text: str) -> None:
    assert format_duration(seconds) == text


def test_mb_and_gb_of_other_tools_are_powers_of_1024() -> None:
    assert (in_mb(3 << 20), in_gb(3 << 30)) == (3.0, 3.0)
    assert (in_mb(None), in_gb(None)) == (None, None)
    assert parse_size("3MB") == 3 << 20
    assert parse_size("3gb") == 3 << 30


@pytest.mark.parametrize("text", ["1e308", "1" + "0" * 30, "9" * 90, "1" + "0" * 20 + "d", "1e11"])
def test_times_that_no_clock_counts_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="is too long a time"):
        parse_duration(text)
    with pytest.raises(InputError, match="is not a time, or too long ago"):
        parse_instant(text, NOW_US)


@pytest.mark.parametrize("text", ["9" * 60 + "g", "1" + "0" * 30, "9000000000g"])
def test_sizes_that_no_memory_has_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="is larger than any memory"):
        parse_size(text)


@pytest.mark.parametrize("parse", [parse_size, parse_duration])
def test_long_texts_are_refused_unread_and_shown_in_part(parse: Callable[[str], float]) -> None:
    with pytest.raises(InputError) as refused:
        parse("9" * 100_000)
    assert len(str(refused.value)) < 100


@pytest.mark.parametrize(
    ("size", "typed", "meant"),
    [(512, "512", "512m"), (4096, "4k", "4m"), (65535, 65535, "65535m")],
)
def test_memory_that_is_too_small_is_taken_for_a_missing_unit(size: int, typed: object, meant: str) -> None:
    assert small_memory(size, typed) == f"{size} bytes is too small; did you mean {meant}?"
    assert small_memory(1, 1) == "1 byte is too small; did you mean 1m?"
    assert small_memory(64 * KIB, "64k") == ""
