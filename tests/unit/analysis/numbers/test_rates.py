import pytest

from joblens.analysis.numbers.rates import (
    cpu_percent,
    growth,
    host_cpu_percent,
    per_second,
    throttle_percent,
    unreclaimable_bytes,
)
from joblens.model.jobs.sample import Sample
from tests.builders.records import a_sample


def test_one_busy_core_is_100_percent() -> None:
    earlier, later = a_sample(1, cpu_total_usec=500_000), a_sample(3, cpu_total_usec=2_500_000)
    assert cpu_percent(earlier, later) == 100.0


def test_a_rate_is_by_the_monotonic_clock_although_the_wall_clock_jumps() -> None:
    earlier = Sample(at_us=1_000_000_000, elapsed_us=0, io_read_bytes=0)
    later = Sample(at_us=5, elapsed_us=2_000_000, io_read_bytes=4096)
    assert per_second(earlier, later, "io_read_bytes") == 2048.0


@pytest.mark.parametrize(
    ("before", "after"), [(None, 5), (5, None), (7, 5)], ids=["first missing", "last missing", "backwards"]
)
def test_a_counter_that_cannot_be_compared_has_no_rate(before: int | None, after: int | None) -> None:
    earlier, later = a_sample(0, io_read_bytes=before), a_sample(1, io_read_bytes=after)
    assert growth(earlier, later, "io_read_bytes") is None
    assert per_second(earlier, later, "io_read_bytes") is None


def test_no_time_passed_means_no_rate() -> None:
    assert cpu_percent(a_sample(1, cpu_total_usec=0), a_sample(1, cpu_total_usec=9)) is None


def test_throttling_is_the_share_of_periods() -> None:
    earlier = a_sample(0, cpu_periods=10, cpu_throttled_periods=0)
    later = a_sample(1, cpu_periods=20, cpu_throttled_periods=4)
    assert throttle_percent(earlier, later) == 40.0


def test_without_periods_nothing_was_throttled() -> None:
    earlier = a_sample(0, cpu_periods=0, cpu_throttled_periods=0)
    assert throttle_percent(earlier, a_sample(1, cpu_periods=0, cpu_throttled_periods=0)) == 0.0


def test_without_a_reading_throttling_is_unknown() -> None:
    assert throttle_percent(a_sample(0), a_sample(1)) is None


def test_the_host_is_busy_when_all_cores_are() -> None:
    earlier = a_sample(0, host_cpu_busy_usec=0, host_cpu_total_usec=0)
    later = a_sample(1, host_cpu_busy_usec=1_500_000, host_cpu_total_usec=2_000_000)
    assert host_cpu_percent(earlier, later) == 75.0


def test_unreclaimable_memory_leaves_the_page_cache_out() -> None:
    sample = a_sample(
        memory_anon_bytes=100, memory_shmem_bytes=20, memory_kernel_bytes=3, memory_file_bytes=5000
    )
    assert unreclaimable_bytes(sample) == 123


def test_unreclaimable_memory_adds_what_is_known() -> None:
    assert unreclaimable_bytes(a_sample(memory_anon_bytes=100)) == 100
    assert unreclaimable_bytes(a_sample()) is None
