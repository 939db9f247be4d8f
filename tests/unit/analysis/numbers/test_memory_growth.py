"""A floor that keeps rising is a leak; what rises and falls, or levels out, is a program at work."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from joblens.analysis.findings.job import findings_for
from joblens.analysis.findings.memory_growth import memory_growth
from joblens.model.jobs.job import Code, Requirements, Status, Usage
from joblens.model.jobs.sample import Sample
from joblens.model.values.units import GIB, MIB
from tests.builders.records import a_record, a_sample


def curve(mib: Callable[[float], float], seconds: float = 600, every_s: float = 1.0) -> list[Sample]:
    """Memory over the share of the time that has passed; as the kernel sees it, with a start and an end."""
    count = round(seconds / every_s)
    middle = [
        a_sample(place * every_s, memory_anon_bytes=round(mib(place / count) * MIB))
        for place in range(1, count)
    ]
    return [a_sample(0, memory_anon_bytes=MIB), *middle, a_sample(seconds, memory_anon_bytes=0)]


def found(samples: list[Sample], **more: object) -> list[str]:
    record = a_record(
        duration_s=samples[-1].elapsed_us / 1e6, usage=Usage(cpu_total_usec=500_000_000), **more
    )
    return [finding.text for finding in findings_for(record, samples) if finding.code == Code.LEAK_SUSPECTED]


def test_a_steady_rise_is_reported_with_its_rate_and_when_the_limit_would_be_reached() -> None:
    leaking = curve(lambda part: 100 + 600 * part)
    (text,) = found(leaking, job={"requirements": Requirements(memory_bytes=GIB)})
    assert "rose from 17" in text  # after the first eighth
    assert "by 3.5 GiB per hour" in text
    assert "its limit of 1.0 GiB in another 5m" in text


def test_without_a_limit_the_machines_memory_is_what_ends_it() -> None:
    (text,) = found(curve(lambda part: 100 + 600 * part))
    assert "the machine's memory (64.0 GiB) in another 18h" in text


def test_a_rise_that_would_take_months_to_matter_says_nothing_about_the_end() -> None:
    slow = curve(lambda part: 100 + 60 * part, seconds=36 * 3600, every_s=120)
    (text,) = found(slow, attempt={"memory_total_bytes": 1024 * GIB})
    assert "per hour" in text
    assert "another" not in text


def test_a_job_that_leaks_is_not_asked_to_ask_for_less() -> None:
    asked = {"requirements": Requirements(memory_bytes=8 * GIB)}
    usage = Usage(cpu_total_usec=500_000_000, memory_peak_bytes=700 * MIB)
    leaking, level = curve(lambda part: 100 + 600 * part), curve(lambda _part: 700)

    def codes(samples: list[Sample]) -> list[str]:
        record = a_record(job=asked, duration_s=600.0, usage=usage)
        return [finding.code for finding in findings_for(record, samples)]

    assert Code.MEMORY_UNUSED in codes(level)
    assert Code.MEMORY_UNUSED not in codes(leaking)
    assert Code.LEAK_SUSPECTED in codes(leaking)


def test_a_saw_tooth_on_a_rising_floor_is_a_leak_all_the_same() -> None:
    assert found(curve(lambda part: 100 + 300 * part + 500 * (part * 64 % 1)))


@pytest.mark.parametrize(
    "mib",
    [
        pytest.param(lambda _part: 800, id="level"),
        pytest.param(lambda part: 100 + 700 * (part * 8 % 1), id="a saw tooth that comes back to its foot"),
        pytest.param(lambda part: 900 if part > 0.2 else 100, id="one step, early"),
        pytest.param(lambda part: 900 if part > 0.7 else 100, id="one step, late"),
        pytest.param(lambda part: 100 + 800 * min(1, part * 3), id="loads, then works"),
        pytest.param(lambda part: 1000 * (1 - math.exp(-8 * part)), id="fills a cache"),
        pytest.param(lambda part: 100 + 800 * math.sin(math.pi * part), id="up and down"),
        pytest.param(lambda part: 900 - 700 * part, id="shrinks"),
        pytest.param(lambda part: 100 + 35 * part, id="31 MiB"),
        pytest.param(lambda part: 2000 + 400 * part, id="a sixth more"),
    ],
)
def test_a_program_at_work_is_no_leak(mib: Callable[[float], float]) -> None:
    assert found(curve(mib)) == []


def test_both_sides_of_what_is_large_enough() -> None:
    # the floor is looked at from the third of sixteen parts on: 13/16 of the rise
    assert found(curve(lambda part: 100 + 40 * part))
    assert not found(curve(lambda part: 100 + 38 * part))
    assert found(curve(lambda part: 1000 + 270 * part))
    assert not found(curve(lambda part: 1000 + 240 * part))


def test_a_short_job_or_one_seldom_seen_shows_no_trend() -> None:
    assert memory_growth(curve(lambda part: 900 * part, seconds=61)) is None
    assert memory_growth(curve(lambda part: 900 * part, seconds=63)) is not None
    assert memory_growth(curve(lambda part: 900 * part, every_s=30)) is None
    assert memory_growth([]) is None


def test_a_rise_has_no_end_when_there_is_none() -> None:
    growth = memory_growth(curve(lambda _part: 100))
    assert growth is not None
    assert growth.seconds_until(GIB) is None
    assert structs.replace(growth, bytes_per_hour=3600.0).seconds_until(1) == 0.0


@given(st.lists(st.integers(0, 2**40), min_size=25, max_size=200), st.integers(3, 60))
def test_whatever_the_curve_is_something_can_be_said(sizes: list[int], every_s: int) -> None:
    samples = [a_sample(place * every_s, memory_anon_bytes=size) for place, size in enumerate(sizes)]
    growth = memory_growth(samples)
    assert growth is not None
    assert 0 <= growth.rising_share <= 1
    assert growth.keeps_rising in (True, False)


def killed(samples: list[Sample], peak_mib: int = 256, **more: Any) -> list[str]:
    """A job that its limit ended."""
    usage = Usage(memory_peak_bytes=peak_mib * MIB, oom_kills=1)
    record = a_record(
        duration_s=samples[-1].elapsed_us / 1e6,
        status=Status.FAILED,
        reason="out-of-memory",
        exit_code=None,
        signal=9,
        usage=usage,
        job={"requirements": Requirements(memory_bytes=256 * MIB)},
        **more,
    )
    return [finding.text for finding in findings_for(record, samples) if finding.code == Code.LEAK_SUSPECTED]


@pytest.mark.parametrize(("seconds", "every_s"), [(2.2, 1.0), (5.0, 1.0), (9.0, 5.0), (3.0, 0.2)])
def test_a_leak_that_ends_out_of_memory_within_seconds_is_one(seconds: float, every_s: float) -> None:
    (text,) = killed(curve(lambda part: 2 + 254 * part, seconds, every_s))
    assert "until it ran out" in text
    assert "to 256.0 MiB" in text
    assert "another" not in text


@pytest.mark.parametrize(
    "mib",
    [
        pytest.param(lambda _part: 10, id="one large allocation at the end"),
        pytest.param(lambda part: 10 + 200 * min(1, part * 3), id="loads, works, and asks for more"),
        pytest.param(lambda part: 250 * (part * 3 % 1), id="a saw tooth"),
    ],
)
def test_a_job_that_ran_out_of_memory_otherwise_is_no_leak(mib: Callable[[float], float]) -> None:
    assert killed(curve(mib, 8.0)) == []


def test_a_job_without_a_sample_on_the_way_is_no_leak() -> None:
    assert killed([a_sample(0, memory_anon_bytes=MIB), a_sample(0.6, memory_anon_bytes=0)]) == []


def test_of_a_job_that_was_killed_nothing_is_foretold() -> None:
    (text,) = killed(curve(lambda part: 20 + 230 * part))
    assert "per hour, until it ran out" in text
    assert "another" not in text
    leaking = curve(lambda part: 100 + 600 * part)
    (text,) = found(leaking, status=Status.FAILED, exit_code=None, signal=9, reason="signal")
    assert "another" not in text


def test_a_sample_shortly_before_the_kill_says_nothing_about_the_way() -> None:
    sizes = ((0.0, 1), (5.0, 185), (5.4, 0))
    samples = [a_sample(at_s, memory_anon_bytes=size * MIB) for at_s, size in sizes]
    assert not killed(samples, peak_mib=200)


def test_a_sample_of_a_job_that_is_being_killed_does_not_break_the_rise() -> None:
    sizes = ((0.0, 1), (1.0, 100), (2.0, 200), (2.5, 30), (2.6, 0))
    samples = [a_sample(at_s, memory_anon_bytes=size * MIB) for at_s, size in sizes]
    assert killed(samples)
