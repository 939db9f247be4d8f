from typing import Any

import pytest

from joblens.analysis.numbers.profile import detailed_profile, rates_over, real_spacing_s
from joblens.analysis.numbers.rates import cpu_percent
from joblens.model.jobs.job import Usage
from joblens.model.jobs.sample import Sample
from joblens.model.values.units import MIB
from tests.builders.records import a_sample


def a_second(second: int, **fields: Any) -> Sample:
    return a_sample(float(second), **fields)


def test_a_profile_has_the_keys_of_the_form_in_their_order() -> None:
    profile = detailed_profile([a_second(0), a_second(1)], Usage(), 1.0)
    assert list(profile)[:10] == [
        "duration_seconds",
        "samples_collected",
        "sampling_interval_seconds",
        "cpu",
        "memory",
        "process_cpu",
        "process_memory",
        "io_stats",
        "gpu_stats",
        "container_stats",
    ]
    assert list(profile["cpu"]) == ["mean_percent", "max_percent", "min_percent"]
    assert list(profile["memory"]) == ["mean_used_mb", "max_used_mb", "min_used_mb"]
    assert list(profile["io_stats"])[:5] == [
        "read_mb",
        "write_mb",
        "read_count",
        "write_count",
        "total_io_mb",
    ]
    assert list(profile["process_memory"])[:3] == ["mean_mb", "max_mb", "min_mb"]


def test_without_samples_the_keys_are_the_same_and_nothing_is_known() -> None:
    empty = detailed_profile([], Usage(), 0.0)
    assert empty.keys() == detailed_profile([a_second(0), a_second(1)], Usage(), 1.0).keys()
    assert empty["cpu"] == {"mean_percent": None, "max_percent": None, "min_percent": None}
    assert empty["process_cpu"]["mean_percent"] is None
    assert empty["gpu_stats"] == {}


def test_the_hosts_numbers_and_the_jobs_stand_apart() -> None:
    samples = [
        a_second(
            0, host_cpu_busy_usec=0, host_cpu_total_usec=0, host_memory_used_bytes=MIB, cpu_total_usec=0
        ),
        a_second(
            1,
            host_cpu_busy_usec=3_000_000,
            host_cpu_total_usec=4_000_000,
            host_memory_used_bytes=3 * MIB,
            cpu_total_usec=500_000,
        ),
    ]
    profile = detailed_profile(samples, Usage(cpu_total_usec=500_000), 1.0)
    assert profile["cpu"]["mean_percent"] == 75.0
    assert profile["memory"]["mean_used_mb"] == 2.0
    assert profile["process_cpu"]["mean_percent"] == 50.0


def test_the_jobs_mean_cpu_is_from_exact_totals() -> None:
    profile = detailed_profile([], Usage(cpu_total_usec=3_000_000), 2.0)
    assert profile["process_cpu"] == {"mean_percent": 150.0, "max_percent": 150.0, "min_percent": 150.0}


def test_a_time_too_short_for_a_share_has_none() -> None:
    profile = detailed_profile([], Usage(cpu_total_usec=400), 0.0003)
    assert profile["process_cpu"]["mean_percent"] is None


def test_the_highest_cpu_is_between_two_samples() -> None:
    samples = [
        a_second(0, cpu_total_usec=0),
        a_second(1, cpu_total_usec=100),
        a_second(2, cpu_total_usec=1_000_100),
    ]
    profile = detailed_profile(samples, Usage(cpu_total_usec=1_000_100), 2.0)
    assert profile["process_cpu"]["max_percent"] == 100.0
    assert profile["process_cpu"]["min_percent"] == pytest.approx(0.01)


def test_job_memory_is_what_cannot_be_reclaimed() -> None:
    samples = [
        a_second(0, memory_anon_bytes=0),
        a_second(1, memory_anon_bytes=MIB, memory_virtual_bytes=99 * MIB),
        a_second(2, memory_anon_bytes=4 * MIB),
        a_second(3, memory_anon_bytes=0),
    ]
    usage = Usage(memory_peak_bytes=5 * MIB, memory_mean_bytes=3 * MIB, memory_kernel_peak_bytes=50 * MIB)
    memory = detailed_profile(samples, usage, 2.0)["process_memory"]
    assert (memory["mean_mb"], memory["max_mb"], memory["min_mb"]) == (3.0, 5.0, 1.0)
    assert (memory["max_with_cache_mb"], memory["max_virtual_mb"]) == (50.0, 99.0)


def test_the_least_memory_of_what_ran_before_and_after_is_that_of_all_samples() -> None:
    """A host program or a container is there at the first sample and at the last."""
    samples = [a_second(second, memory_anon_bytes=size * MIB) for second, size in enumerate((2, 5, 7, 3))]
    for running, least in ((None, 5.0), (samples, 2.0), (samples[1:], 3.0)):
        memory = detailed_profile(samples, Usage(), 3.0, running=running)["process_memory"]
        assert memory["min_mb"] == least


def test_shares_are_of_the_time_that_was_counted() -> None:
    """A container that was found after a second has no counters of that second."""
    samples = [
        a_second(0),
        a_second(1, cpu_total_usec=0, cpu_periods=0, cpu_throttled_periods=0),
        a_second(3, cpu_total_usec=1_156_000, io_some_usec=500_000, cpu_periods=20, cpu_throttled_periods=5),
    ]
    profile = detailed_profile(samples, Usage(cpu_total_usec=1_156_000), 3.0, counted_s=2.0)
    assert profile["process_cpu"]["mean_percent"] == 57.8
    assert profile["pressure"]["io"]["some_percent"] == 25.0
    assert profile["throttling"]["throttled_percent"] == 25.0
    assert profile["duration_seconds"] == 3.0


def test_io_is_that_of_devices_and_its_sum_is_null_when_a_half_is_unknown() -> None:
    usage = Usage(io_read_bytes=2 * MIB, io_write_bytes=MIB, io_read_ops=7)
    io = detailed_profile([], usage, 1.0)["io_stats"]
    assert (io["read_mb"], io["write_mb"], io["total_io_mb"]) == (2.0, 1.0, 3.0)
    assert (io["read_count"], io["write_count"]) == (7, None)
    assert detailed_profile([], Usage(io_read_bytes=1), 1.0)["io_stats"]["total_io_mb"] is None


def test_pressure_is_a_share_of_the_whole_time() -> None:
    profile = detailed_profile([a_second(0), a_second(4, io_some_usec=1_000_000)], Usage(), 4.0)
    assert profile["pressure"]["io"] == {"some_percent": 25.0, "full_percent": None}


def test_throttling_is_a_share_of_periods() -> None:
    samples = [
        a_second(0, cpu_periods=0, cpu_throttled_periods=0),
        a_second(1, cpu_periods=10, cpu_throttled_periods=5),
    ]
    profile = detailed_profile(samples, Usage(cpu_throttled_usec=250_000), 1.0)
    assert profile["throttling"] == {"throttled_seconds": 0.25, "throttled_percent": 50.0}


def test_the_spacing_is_the_real_one_without_the_sample_at_the_end() -> None:
    samples = [a_sample(seconds) for seconds in (0.0, 1.01, 2.02, 2.05)]
    assert real_spacing_s(samples) == pytest.approx(1.01)


def test_a_selection_of_samples_tells_how_many_there_were() -> None:
    samples = [a_sample(seconds) for seconds in (0.0, 8.0, 9.0, 9.5)]
    profile = detailed_profile(samples, Usage(), 9.5, count=11)
    assert profile["samples_collected"] == 11
    assert profile["sampling_interval_seconds"] == 1.0


def test_a_short_burst_between_far_samples_is_kept() -> None:
    samples = [
        a_sample(0.0, cpu_total_usec=0),
        a_sample(60.0, cpu_total_usec=0),
        a_sample(61.0, cpu_total_usec=2_000_000),
        a_sample(120.0, cpu_total_usec=2_000_000),
    ]
    assert max(rates_over(samples, cpu_percent)) == 200.0


def test_two_samples_are_too_few_to_tell_their_spacing() -> None:
    assert real_spacing_s([a_second(0), a_second(1)]) is None


def test_a_sample_right_after_another_makes_no_spike() -> None:
    samples = [
        a_sample(0.0, cpu_total_usec=0),
        a_sample(1.0, cpu_total_usec=500_000),
        a_sample(2.0, cpu_total_usec=1_000_000),
        a_sample(2.001, cpu_total_usec=1_010_000),  # one tick later: 1000 % if taken alone
    ]
    assert max(rates_over(samples, cpu_percent)) == 50.0
