from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joblens.analysis.numbers.rates import NOT_MEASURED, unreclaimable_bytes
from joblens.analysis.numbers.usage import GROWING, RUSAGE, source_of, total_usage
from joblens.model.jobs.job import USAGE_NUMBERS, ExitUsage, Usage
from joblens.model.jobs.sample import SAMPLE_COLUMNS, GpuReading, Sample
from joblens.model.values.units import MIB
from tests.builders.records import a_sample

CPU_STAT = {"cpu": "cgroup v2 cpu.stat"}


def usage_in_group(*samples: Sample, exit_usage: ExitUsage | None = None, **more: Any) -> Usage:
    given = {"accounting": "cgroup-v2", "sources": CPU_STAT, "unknown": {}} | more
    return total_usage(samples, exit_usage, **given)


def usage_in_tree(*samples: Sample, exit_usage: ExitUsage | None = None) -> Usage:
    return total_usage(samples, exit_usage, accounting="process-tree", sources={}, unknown={})


# CPU


def test_cpu_of_a_group_is_its_counter_at_the_end() -> None:
    last = a_sample(2, cpu_total_usec=900, cpu_user_usec=600, cpu_system_usec=300)
    usage = usage_in_group(a_sample(0, cpu_total_usec=5), last, exit_usage=ExitUsage(user_usec=400))
    assert (usage.cpu_total_usec, usage.cpu_user_usec, usage.cpu_system_usec) == (900, 600, 300)
    assert usage.sources["cpu"] == "cgroup v2 cpu.stat"
    assert "cpu_total_usec" not in usage.lower_bounds


def test_a_group_that_counts_only_the_total_is_split_as_the_waited_processes_were() -> None:
    waited = ExitUsage(user_usec=300, system_usec=100)
    usage = usage_in_group(a_sample(1, cpu_total_usec=1000), exit_usage=waited)
    assert (usage.cpu_user_usec, usage.cpu_system_usec) == (750, 250)


def test_ticks_of_user_and_system_time_are_scaled_to_the_exact_total() -> None:
    usage = usage_in_group(a_sample(1, cpu_total_usec=100_500, cpu_user_usec=60_000, cpu_system_usec=30_000))
    assert (usage.cpu_user_usec, usage.cpu_system_usec) == (67_000, 33_500)


def test_a_job_shorter_than_a_tick_has_a_total_but_no_split() -> None:
    usage = usage_in_group(a_sample(0, cpu_total_usec=700, cpu_user_usec=0, cpu_system_usec=0))
    assert (usage.cpu_total_usec, usage.cpu_user_usec) == (700, None)
    assert "too short" in usage.unknown["cpu_user_usec"]


def test_a_group_whose_last_reading_failed_gives_a_lower_bound() -> None:
    usage = usage_in_group(a_sample(1, cpu_total_usec=500), a_sample(2))
    assert usage.cpu_total_usec == 500
    assert "cpu_total_usec" in usage.lower_bounds


def test_cpu_of_a_process_tree_is_what_was_waited_for() -> None:
    waited = ExitUsage(user_usec=1500, system_usec=500)
    usage = usage_in_tree(a_sample(1, cpu_total_usec=1990), exit_usage=waited)
    assert (usage.cpu_total_usec, usage.cpu_user_usec, usage.cpu_system_usec) == (2000, 1500, 500)
    assert usage.sources["cpu"] == RUSAGE
    assert usage.lower_bounds == ()


def test_children_nobody_waited_for_are_counted_as_last_seen_and_marked() -> None:
    waited = ExitUsage(user_usec=100, system_usec=0)
    usage = usage_in_tree(a_sample(1, cpu_total_usec=2_000_000), exit_usage=waited)
    assert usage.cpu_total_usec == 2_000_000
    assert "cpu_total_usec" in usage.lower_bounds


def test_without_anything_waited_for_the_tree_gives_a_lower_bound() -> None:
    usage = usage_in_tree(a_sample(1, cpu_total_usec=70))
    assert usage.cpu_total_usec == 70
    assert "cpu_total_usec" in usage.lower_bounds


# memory


def test_peak_memory_is_the_largest_sample_of_what_cannot_be_reclaimed() -> None:
    usage = usage_in_group(
        a_sample(1, memory_anon_bytes=50 * MIB, memory_shmem_bytes=5 * MIB, memory_kernel_bytes=MIB),
        a_sample(2, memory_anon_bytes=MIB),
    )
    assert usage.memory_peak_bytes == 56 * MIB


def test_a_spike_between_two_samples_is_found_in_the_kernels_peak_less_the_page_cache_seen() -> None:
    usage = usage_in_group(
        a_sample(
            1, memory_anon_bytes=10 * MIB, memory_file_bytes=30 * MIB, memory_kernel_peak_bytes=40 * MIB
        ),
        a_sample(2, memory_anon_bytes=0, memory_file_bytes=30 * MIB, memory_kernel_peak_bytes=540 * MIB),
    )
    assert usage.memory_peak_bytes == 510 * MIB
    assert usage.memory_kernel_peak_bytes == 540 * MIB
    assert usage.estimates == ()


def test_page_cache_that_was_seen_is_said_to_be_taken_off() -> None:
    usage = usage_in_group(
        a_sample(1, memory_anon_bytes=0, memory_file_bytes=0, memory_kernel_peak_bytes=0),
        a_sample(2, memory_anon_bytes=0, memory_file_bytes=30 * MIB, memory_kernel_peak_bytes=32 * MIB),
    )
    assert usage.memory_peak_bytes == 2 * MIB
    assert usage.sources["memory_peak"].endswith("less file pages")
    assert usage.memory_file_peak_bytes == 30 * MIB


def loaded(
    files: int, kernel_peak: int, *, io: int = 0, removed: int = 0, largest: int = 0, **last: int
) -> Usage:
    """A job that was looked at when it began and when it had ended."""
    return usage_in_group(
        a_sample(0, memory_anon_bytes=0, memory_file_bytes=0, memory_kernel_peak_bytes=0),
        a_sample(
            1, memory_anon_bytes=0, memory_file_bytes=files, memory_kernel_peak_bytes=kernel_peak, **last
        ),
        exit_usage=ExitUsage(
            max_rss_bytes=largest, io_read_bytes=io, io_write_bytes=0, io_removed_bytes=removed, reaped=1
        ),
    )


def test_the_peak_is_the_same_with_a_cold_and_a_warm_page_cache() -> None:
    cold = loaded(200 * MIB, 203 * MIB, io=200 * MIB, largest=208 * MIB)
    warm = loaded(0, 3 * MIB, io=0, largest=208 * MIB)
    assert cold.memory_peak_bytes == warm.memory_peak_bytes == 3 * MIB
    # A spike may have come and gone before the files were read.
    assert cold.estimates == ("memory_peak_bytes",)
    assert warm.estimates == ()
    assert cold.memory_peak_basis == "unreclaimable"


def test_where_no_process_was_larger_a_cold_cache_hides_nothing() -> None:
    usage = loaded(200 * MIB, 205 * MIB, io=200 * MIB, largest=5 * MIB)
    assert (usage.memory_peak_bytes, usage.estimates) == (5 * MIB, ())


def test_a_spike_is_not_lost_behind_files_that_were_there_before_and_after() -> None:
    seen: dict[str, Any] = {"memory_anon_bytes": 10 * MIB, "memory_file_bytes": 200 * MIB}
    usage = usage_in_group(
        a_sample(0, memory_anon_bytes=0, memory_file_bytes=0, memory_kernel_peak_bytes=0),
        a_sample(1, memory_kernel_peak_bytes=210 * MIB, **seen),
        a_sample(2, memory_kernel_peak_bytes=510 * MIB, **seen),
        a_sample(3, memory_anon_bytes=0, memory_file_bytes=900 * MIB, memory_kernel_peak_bytes=900 * MIB),
    )
    assert usage.memory_peak_bytes == 310 * MIB
    assert usage.memory_file_peak_bytes == 900 * MIB


def test_files_that_were_read_while_others_were_still_there_are_no_memory() -> None:
    """At the peak there were more file pages than at the sample before it and at the one after it."""
    usage = usage_in_group(
        a_sample(0, memory_anon_bytes=0, memory_file_bytes=0, memory_kernel_peak_bytes=0, io_read_bytes=0),
        a_sample(
            1,
            memory_anon_bytes=37 * MIB,
            memory_file_bytes=150 * MIB,
            memory_kernel_peak_bytes=187 * MIB,
            io_read_bytes=142 * MIB,
        ),
        a_sample(
            2,
            memory_anon_bytes=0,
            memory_file_bytes=146 * MIB,  # 4 MiB more were read, a file of 8 MiB was removed
            memory_kernel_peak_bytes=195 * MIB,
            io_read_bytes=146 * MIB,
        ),
    )
    assert usage.memory_peak_bytes == 41 * MIB


def test_a_file_that_was_written_and_removed_between_two_samples_is_no_memory() -> None:
    usage = loaded(0, 204 * MIB, io=200 * MIB, largest=4 * MIB)
    assert usage.memory_peak_bytes == 4 * MIB


def test_a_mapped_file_that_a_short_job_removed_is_no_memory() -> None:
    """As MPI has one for its processes: a longer run of the same job is sampled while it is there."""
    usage = loaded(0, 19 * MIB, io=8 * MIB, removed=8 * MIB, largest=28 * MIB)
    assert usage.memory_peak_bytes == 11 * MIB


def test_what_no_process_held_is_shared_memory_unless_files_were_written() -> None:
    usage = loaded(0, 204 * MIB, io=MIB, largest=4 * MIB)
    assert usage.memory_peak_bytes == 204 * MIB


def test_a_peak_that_may_have_files_in_it_is_an_estimate() -> None:
    usage = loaded(0, 204 * MIB, io=50 * MIB, largest=300 * MIB)
    assert (usage.memory_peak_bytes, usage.estimates) == (204 * MIB, ("memory_peak_bytes",))


def test_many_processes_that_grew_together_are_not_cut_down_to_one() -> None:
    usage = loaded(0, 800 * MIB, io=900 * MIB, largest=100 * MIB, processes=8)
    assert usage.memory_peak_bytes == 800 * MIB


def test_caches_of_directories_are_no_memory_the_job_needs() -> None:
    usage = usage_in_group(
        a_sample(
            1,
            memory_anon_bytes=2 * MIB,
            memory_file_bytes=0,
            memory_kernel_bytes=91 * MIB,
            memory_slab_reclaimable_bytes=90 * MIB,
            memory_kernel_peak_bytes=93 * MIB,
        )
    )
    assert usage.memory_peak_bytes == 3 * MIB


def test_without_a_group_mapped_files_are_taken_off_the_largest_process() -> None:
    usage = usage_in_tree(
        a_sample(0, memory_anon_bytes=0, processes=1, memory_largest_process_bytes=MIB),
        a_sample(
            1,
            memory_anon_bytes=3 * MIB,
            processes=1,
            memory_largest_process_bytes=208 * MIB,
            memory_largest_process_file_bytes=203 * MIB,
        ),
        exit_usage=ExitUsage(max_rss_bytes=208 * MIB, rss_floor_bytes=9 * MIB, reaped=1),
    )
    assert usage.memory_peak_bytes == 5 * MIB
    assert usage.memory_largest_process_bytes == 208 * MIB
    assert usage.memory_file_peak_bytes == 203 * MIB


def test_without_a_group_growth_after_the_last_sample_is_found_in_what_was_waited_for() -> None:
    usage = usage_in_tree(
        a_sample(
            1,
            memory_anon_bytes=3 * MIB,
            processes=1,
            memory_largest_process_bytes=8 * MIB,
            memory_largest_process_file_bytes=5 * MIB,
        ),
        exit_usage=ExitUsage(max_rss_bytes=505 * MIB, rss_floor_bytes=9 * MIB, reaped=1),
    )
    assert usage.memory_peak_bytes == 500 * MIB
    assert usage.sources["memory_peak"] == "largest process: wait4 rusage less file pages"


def test_where_mapped_files_are_unknown_the_high_water_mark_is_an_estimate() -> None:
    waited = ExitUsage(max_rss_bytes=208 * MIB, rss_floor_bytes=9 * MIB, reaped=1)
    usage = usage_in_tree(a_sample(0, memory_anon_bytes=0, processes=1), exit_usage=waited)
    assert usage.memory_peak_bytes == 208 * MIB
    assert usage.estimates == ("memory_peak_bytes",)
    assert usage.sources["memory_peak"].endswith("with the files that it maps")


def test_where_no_sample_found_a_process_there_are_no_zeros() -> None:
    usage = usage_in_group(
        a_sample(1, processes=0, threads=0, open_files=0), a_sample(2, processes=0, threads=0, open_files=0)
    )
    for number in ("processes_peak", "threads_peak", "open_files_peak"):
        assert getattr(usage, number) is None
        assert usage.unknown[number] == "no sample found a process"


def test_processes_that_came_from_another_group_are_why_there_is_no_memory() -> None:
    usage = usage_in_group(
        *(a_sample(at, processes=1, memory_anon_bytes=0, memory_file_bytes=0) for at in (1, 2, 3))
    )
    assert (usage.memory_peak_bytes, usage.memory_mean_bytes) == (None, None)
    assert "charged to their previous group" in usage.unknown["memory_peak_bytes"]
    assert "charged to their previous group" in usage.unknown["memory_mean_bytes"]


def test_page_cache_is_not_taken_for_used_memory() -> None:
    usage = usage_in_group(
        a_sample(1, memory_anon_bytes=MIB, memory_file_bytes=900 * MIB, memory_kernel_peak_bytes=901 * MIB)
    )
    assert usage.memory_peak_bytes == MIB
    assert usage.memory_kernel_peak_bytes == 901 * MIB


def test_shared_memory_is_not_taken_for_page_cache() -> None:
    usage = usage_in_group(
        a_sample(
            1,
            memory_anon_bytes=0,
            memory_file_bytes=100 * MIB,
            memory_shmem_bytes=90 * MIB,
            memory_kernel_peak_bytes=200 * MIB,
        )
    )
    assert usage.memory_peak_bytes == 190 * MIB


def test_a_short_spike_of_one_process_is_found_in_its_high_water_mark() -> None:
    waited = ExitUsage(max_rss_bytes=500 * MIB, rss_floor_bytes=9 * MIB, reaped=1)
    usage = usage_in_tree(a_sample(1, memory_anon_bytes=20 * MIB, processes=1), exit_usage=waited)
    assert usage.memory_peak_bytes == 500 * MIB
    assert usage.memory_largest_process_bytes == 500 * MIB
    assert "memory_peak_bytes" not in usage.lower_bounds


def test_a_high_water_mark_at_the_launchers_own_size_says_nothing() -> None:
    waited = ExitUsage(max_rss_bytes=9 * MIB, rss_floor_bytes=9 * MIB, reaped=1)
    usage = usage_in_tree(exit_usage=waited)
    assert usage.memory_peak_bytes is None
    assert "launcher" in usage.unknown["memory_peak_bytes"]
    assert "launcher" in usage.unknown["memory_largest_process_bytes"]


def test_a_bound_of_the_largest_process_that_is_below_the_peak_is_left_out() -> None:
    small = ExitUsage(max_rss_bytes=9 * MIB, rss_floor_bytes=9 * MIB, reaped=1)
    early = a_sample(
        1, memory_largest_process_bytes=16 * 1024, memory_kernel_peak_bytes=MIB, memory_anon_bytes=MIB // 2
    )
    usage = usage_in_group(early, exit_usage=small)
    assert usage.memory_peak_bytes is not None
    assert usage.memory_largest_process_bytes is None
    assert "launcher" in usage.unknown["memory_largest_process_bytes"]
    assert "memory_largest_process_bytes" not in usage.lower_bounds
    without_its_exit = usage_in_group(early)
    assert without_its_exit.memory_largest_process_bytes == 16 * 1024


def test_several_processes_without_a_group_make_the_peak_a_lower_bound() -> None:
    usage = usage_in_tree(a_sample(1, memory_anon_bytes=20 * MIB, processes=3))
    assert "memory_peak_bytes" in usage.lower_bounds


def test_the_kernels_peak_bounds_what_a_process_shares_with_others() -> None:
    usage = usage_in_group(
        a_sample(
            1, memory_largest_process_bytes=9 * MIB, memory_kernel_peak_bytes=2 * MIB, memory_anon_bytes=MIB
        )
    )
    assert usage.memory_peak_bytes == 2 * MIB
    assert usage.memory_largest_process_bytes == 9 * MIB


def test_mean_memory_is_over_the_time_the_job_ran() -> None:
    usage = usage_in_group(
        a_sample(0, memory_anon_bytes=0),  # before its program is loaded
        a_sample(2, memory_anon_bytes=100),
        a_sample(4, memory_anon_bytes=200),
        a_sample(6, memory_anon_bytes=0),  # after the end
    )
    assert usage.memory_mean_bytes == (2 * 100 + 2 * 150 + 2 * 200) / 6


def test_a_job_without_a_sample_in_the_middle_has_no_mean_memory() -> None:
    usage = usage_in_group(a_sample(0, memory_anon_bytes=1), a_sample(0.02, memory_anon_bytes=0))
    assert usage.memory_mean_bytes is None
    assert usage.unknown["memory_mean_bytes"] == "no sample was taken between start and end"


# I/O


def test_device_io_of_a_group_is_its_counter() -> None:
    waited = ExitUsage(io_read_bytes=1, io_write_bytes=1)
    last = a_sample(1, io_read_bytes=4096, io_write_bytes=8192, io_read_ops=1, io_write_ops=2)
    usage = usage_in_group(last, exit_usage=waited)
    assert (usage.io_read_bytes, usage.io_write_bytes, usage.io_write_ops) == (4096, 8192, 2)
    assert "io_read_bytes" not in usage.lower_bounds


def test_a_group_that_does_not_count_io_leaves_it_to_the_waited_processes() -> None:
    waited = ExitUsage(io_read_bytes=4096, io_write_bytes=0, io_call_reads=9)
    usage = usage_in_group(a_sample(1, io_read_bytes=512), exit_usage=waited)
    assert (usage.io_read_bytes, usage.io_call_reads) == (4096, 9)
    assert usage.io_read_ops is None
    assert "io_read_bytes" not in usage.lower_bounds


def test_io_calls_without_anything_waited_for_are_a_lower_bound() -> None:
    usage = usage_in_group(a_sample(1, io_call_read_bytes=77), a_sample(2))
    assert usage.io_call_read_bytes == 77
    assert "io_call_read_bytes" in usage.lower_bounds


# the rest


def test_peaks_are_the_largest_sample() -> None:
    usage = usage_in_group(
        a_sample(0, processes=1, threads=1, open_files=4),
        a_sample(1, processes=7, threads=9, open_files=40),
        a_sample(2, processes=0, threads=0, open_files=0),
    )
    assert (usage.processes_peak, usage.threads_peak, usage.open_files_peak) == (7, 9, 40)


def test_events_are_what_the_group_counted_at_the_end() -> None:
    usage = usage_in_group(
        a_sample(1, oom_kills=1, cpu_throttled_usec=5, io_some_usec=6, pids_limit_events=2)
    )
    assert (usage.oom_kills, usage.cpu_throttled_usec, usage.io_pressure_usec) == (1, 5, 6)
    assert usage.pids_limit_events == 2


def test_an_unknown_number_has_the_probes_reason() -> None:
    usage = usage_in_group(a_sample(1), unknown={"io_some_usec": "the kernel was built without PSI"})
    assert usage.unknown["io_pressure_usec"] == "the kernel was built without PSI"


def test_without_samples_and_without_waiting_everything_is_unknown() -> None:
    usage = usage_in_tree()
    assert all(getattr(usage, number) is None for number in USAGE_NUMBERS)
    assert usage.unknown["cpu_total_usec"] == "no sample was taken"


some_samples = st.lists(
    st.dictionaries(st.sampled_from(SAMPLE_COLUMNS[2:]), st.integers(0, 2**40), max_size=30), max_size=4
).map(lambda rows: [a_sample(float(second), **row) for second, row in enumerate(rows)])
some_exits = st.none() | st.builds(
    ExitUsage,
    user_usec=st.integers(0, 2**40),
    system_usec=st.integers(0, 2**40),
    max_rss_bytes=st.integers(0, 2**40),
    io_read_bytes=st.none() | st.integers(0, 2**40),
    reaped=st.integers(0, 3),
)


@given(some_samples, some_exits, st.sampled_from(["cgroup-v2", "cgroup-hybrid", "process-tree"]))
def test_every_number_has_either_a_source_or_a_reason(
    samples: list[Sample], exit_usage: ExitUsage | None, accounting: str
) -> None:
    usage = total_usage(samples, exit_usage, accounting=accounting, sources={}, unknown={})
    for number in USAGE_NUMBERS:
        if getattr(usage, number) is None:
            assert usage.unknown[number]
        else:
            assert source_of(usage, number)
            assert number not in usage.unknown


@given(some_samples, some_exits)
def test_user_and_system_time_add_up_to_the_total(
    samples: list[Sample], exit_usage: ExitUsage | None
) -> None:
    usage = total_usage(samples, exit_usage, accounting="cgroup-hybrid", sources={}, unknown={})
    if usage.cpu_user_usec is not None and usage.cpu_system_usec is not None:
        assert usage.cpu_user_usec + usage.cpu_system_usec == usage.cpu_total_usec


@given(some_samples, some_exits)
def test_peak_memory_never_exceeds_what_the_kernel_charged(
    samples: list[Sample], exit_usage: ExitUsage | None
) -> None:
    usage = total_usage(samples, exit_usage, accounting="cgroup-v2", sources={}, unknown={})
    if usage.memory_peak_bytes is not None and usage.memory_kernel_peak_bytes:
        assert usage.memory_peak_bytes <= usage.memory_kernel_peak_bytes


MEMORY = (
    "memory_anon_bytes",
    "memory_file_bytes",
    "memory_kernel_bytes",
    "memory_shmem_bytes",
    "memory_kernel_peak_bytes",
    "memory_largest_process_bytes",
)
samples_of_memory = st.lists(
    st.dictionaries(st.sampled_from(MEMORY), st.integers(0, 2**40), max_size=len(MEMORY)), max_size=5
).map(lambda rows: [a_sample(float(second), **row) for second, row in enumerate(rows)])


@given(samples_of_memory, some_exits, st.sampled_from(["cgroup-v2", "cgroup-hybrid", "process-tree"]))
def test_peak_memory_is_never_below_a_sample_nor_below_the_mean(
    samples: list[Sample], exit_usage: ExitUsage | None, accounting: str
) -> None:
    usage = total_usage(samples, exit_usage, accounting=accounting, sources={}, unknown={})
    seen = [unreclaimable_bytes(sample) or 0 for sample in samples]
    assert (usage.memory_peak_bytes or 0) >= max([*seen, usage.memory_mean_bytes or 0])


def test_a_sample_above_the_kernels_peak_was_charged_all_the_same() -> None:
    usage = usage_in_group(
        a_sample(0.0),
        a_sample(1.0, memory_anon_bytes=5 * MIB, memory_kernel_peak_bytes=4 * MIB),
        a_sample(2.0, memory_anon_bytes=0, memory_kernel_peak_bytes=4 * MIB),
    )
    assert usage.memory_mean_bytes == usage.memory_peak_bytes == usage.memory_kernel_peak_bytes == 5 * MIB


@pytest.mark.parametrize("accounting", ["cgroup-v2", "process-tree"])
def test_lower_bounds_name_only_known_numbers(accounting: str) -> None:
    usage = total_usage(
        [a_sample(1, cpu_total_usec=1, processes=2)], None, accounting=accounting, sources={}, unknown={}
    )
    assert all(getattr(usage, number) is not None for number in usage.lower_bounds)


def test_what_a_probe_missed_makes_its_numbers_lower_bounds() -> None:
    usage = usage_in_tree_missing({"memory_parts", "io"}, a_sample(1, memory_anon_bytes=MIB, processes=1))
    assert usage.lower_bounds == ("memory_peak_bytes", "processes_peak")


def test_counts_of_samples_are_lower_bounds() -> None:
    """Processes and threads may come and go between two samples."""
    usage = usage_in_group(
        a_sample(0, processes=1, threads=1, open_files=3), a_sample(1, processes=0, threads=0)
    )
    assert (usage.processes_peak, usage.threads_peak, usage.open_files_peak) == (1, 1, 3)
    assert {"processes_peak", "threads_peak", "open_files_peak"} <= set(usage.lower_bounds)


def test_what_was_waited_for_is_complete_whatever_the_probe_missed() -> None:
    waited = ExitUsage(user_usec=5, io_read_bytes=7)
    usage = usage_in_tree_missing({"cpu", "io"}, a_sample(1, cpu_total_usec=1), exit_usage=waited)
    assert usage.lower_bounds == ()


def usage_in_tree_missing(missed: set[str], *samples: Sample, exit_usage: ExitUsage | None = None) -> Usage:
    return total_usage(
        samples, exit_usage, accounting="process-tree", sources={}, unknown={}, lower_bounds=missed
    )


def test_a_process_smaller_than_the_launcher_was_only_seen_and_may_have_been_larger() -> None:
    """The kernel's figure for what was waited for starts from the launcher's own size."""
    waited = ExitUsage(max_rss_bytes=9 * MIB, rss_floor_bytes=9 * MIB, reaped=1)
    first = a_sample(0, processes=1, memory_anon_bytes=16 * 1024, memory_largest_process_bytes=16 * 1024)
    usage = usage_in_tree(first, a_sample(1, processes=0), exit_usage=waited)
    assert usage.memory_peak_bytes == 16 * 1024
    assert {"memory_peak_bytes", "memory_largest_process_bytes"} <= set(usage.lower_bounds)


# what instruments of their own count


def test_network_and_processor_counters_are_what_was_counted_at_the_end() -> None:
    counted = {"network_rx_bytes": 10, "network_tx_packets": 3, "instructions": 7, "cpu_migrations": 2}
    usage = usage_in_group(a_sample(0), a_sample(1, **counted), sources={"network": "BPF"})
    assert (usage.network_rx_bytes, usage.network_tx_packets) == (10, 3)
    assert (usage.instructions, usage.cpu_migrations) == (7, 2)
    assert source_of(usage, "network_rx_bytes") == "BPF"
    assert usage.lower_bounds == ()


def test_a_counter_of_an_instrument_that_was_lost_on_the_way_is_a_lower_bound() -> None:
    usage = usage_in_group(a_sample(0, network_rx_bytes=10), a_sample(1))
    assert (usage.network_rx_bytes, usage.lower_bounds) == (10, ("network_rx_bytes",))


def test_what_no_instrument_looked_at_is_not_measured_and_what_one_could_not_read_has_its_reason() -> None:
    usage = usage_in_group(a_sample(0), unknown={"network_rx_bytes": "not permitted", "gpus": "driver hangs"})
    assert usage.unknown["network_rx_bytes"] == "not permitted"
    assert usage.unknown["gpu_memory_peak_bytes"] == "driver hangs"
    assert usage.unknown["instructions"] == NOT_MEASURED


def energy_sample(second: int, joules: int | None) -> Sample:
    return a_sample(
        second,
        cpu_total_usec=second * 1_000_000,
        host_cpu_busy_usec=second * 2_000_000,
        host_energy_package_uj=None if joules is None else joules * 1_000_000,
    )


@pytest.mark.parametrize("joules", [(0, 40, None), (None, 0, 40), (0, 40, 5)])
def test_energy_of_which_a_part_was_not_seen_is_a_lower_bound(joules: tuple[int | None, ...]) -> None:
    usage = usage_in_group(*(energy_sample(second, each) for second, each in enumerate(joules)))
    assert usage.energy_package_uj == 20_000_000
    assert usage.lower_bounds == ("energy_package_uj",)


def test_energy_that_was_seen_from_start_to_end_is_no_lower_bound() -> None:
    usage = usage_in_group(*(energy_sample(second, second * 40) for second in range(3)))
    assert usage.energy_package_uj == 40_000_000
    assert usage.lower_bounds == ()


def test_a_job_too_short_for_its_share_of_the_energy_has_a_reason() -> None:
    usage = usage_in_group(energy_sample(0, 0), energy_sample(0, 3))
    assert usage.energy_package_uj is None
    assert "resolution of 10ms" in usage.unknown["energy_package_uj"]
    assert usage.unknown["energy_dram_uj"] == NOT_MEASURED


def test_energy_is_the_share_of_the_jobs_cpu_time() -> None:
    samples = [
        a_sample(
            second,
            cpu_total_usec=second * 500_000,
            host_cpu_busy_usec=second * 2_000_000,
            host_energy_package_uj=second * 40_000_000,
        )
        for second in range(5)
    ]
    usage = usage_in_group(*samples, sources={"energy": "powercap"})
    assert usage.energy_package_uj == 40_000_000
    assert usage.energy_dram_uj is None
    assert source_of(usage, "energy_package_uj") == "powercap"


def test_gpu_memory_is_the_largest_look_over_all_devices_and_busy_time_is_added_up() -> None:
    def look(first: int, second: int, busy: int) -> dict[str, GpuReading]:
        return {
            "a": GpuReading(job_memory_bytes=first * MIB, job_busy_usec=busy),
            "b": GpuReading(job_memory_bytes=second * MIB, job_busy_usec=busy),
        }

    usage = usage_in_group(
        a_sample(0, gpus=look(10, 0, 0)), a_sample(1), a_sample(2, gpus=look(5, 7, 90)), a_sample(3, gpus={})
    )
    assert usage.gpu_memory_peak_bytes == 12 * MIB
    assert usage.gpu_busy_usec == 180
    assert usage.gpu_energy_uj is None
    assert "unknown to the driver" in usage.unknown["gpu_energy_uj"]


def test_a_job_that_uses_no_gpu_used_nothing_of_it() -> None:
    usage = usage_in_group(a_sample(0, gpus={}), a_sample(1, gpus={}))
    assert (usage.gpu_memory_peak_bytes, usage.gpu_busy_usec) == (0, 0)


# processes that nobody waited for


def ended(cpu_usec: int, faults: int | None = None, **more: Any) -> Sample:
    return a_sample(2, cpu_total_usec=cpu_usec, faults_minor=faults, **more)


WAITED = ExitUsage(
    user_usec=43_000,
    faults_minor=3_554,
    io_read_bytes=0,
    io_write_bytes=4096,
    io_call_read_bytes=0,
    io_call_write_bytes=10,
    io_call_reads=0,
    io_call_writes=1,
    reaped=1,
)


def test_io_is_a_lower_bound_when_the_group_counted_more_than_was_waited_for() -> None:
    usage = usage_in_group(ended(54_000, 6_346), exit_usage=WAITED)
    assert usage.io_write_bytes == 4096
    assert {"io_read_bytes", "io_write_bytes", "io_call_write_bytes"} <= {*usage.lower_bounds}
    assert "context_switches_voluntary" in usage.lower_bounds
    assert "cpu_total_usec" not in usage.lower_bounds


def test_io_that_the_group_counts_itself_is_exact_without_waiting() -> None:
    last = ended(54_000, 6_346, io_read_bytes=1, io_write_bytes=8192, io_read_ops=1, io_write_ops=2)
    usage = usage_in_group(last, exit_usage=WAITED, sources={**CPU_STAT, "io": "cgroup v2 io.stat"})
    assert usage.io_write_bytes == 8192
    assert "io_write_bytes" not in usage.lower_bounds
    assert "io_call_write_bytes" in usage.lower_bounds


@pytest.mark.parametrize(
    ("cpu_usec", "faults"),
    [
        (43_060, 3_554),  # the last moments of its processes
        (43_000 + 9_000, 3_556),  # of many short threads
        (42_800, 3_540),
        (43_800, None),
    ],
)
def test_io_is_exact_when_group_and_rusage_agree(cpu_usec: int, faults: int | None) -> None:
    assert usage_in_group(ended(cpu_usec, faults), exit_usage=WAITED).lower_bounds == ()


def test_io_is_a_lower_bound_by_cpu_alone_when_the_group_counts_no_faults() -> None:
    assert "io_write_bytes" in usage_in_group(ended(54_000), exit_usage=WAITED).lower_bounds


# a group that was gone before its last reading


def test_without_the_end_what_was_waited_for_is_the_larger_lower_bound() -> None:
    seen = a_sample(1, cpu_total_usec=4_000, cpu_user_usec=3_000, cpu_system_usec=1_000, faults_minor=7)
    waited = ExitUsage(user_usec=8_000, system_usec=400, faults_minor=90, reaped=1)
    usage = usage_in_group(seen, exit_usage=waited, lower_bounds=GROWING, has_end=False)
    assert (usage.cpu_total_usec, usage.cpu_user_usec, usage.faults_minor) == (8_400, 8_000, 90)
    assert usage.sources["cpu"] == RUSAGE
    assert {"cpu_total_usec", "cpu_user_usec", "faults_minor"} <= {*usage.lower_bounds}


def test_without_the_end_what_was_seen_is_not_lowered_by_what_was_waited_for() -> None:
    """Nobody waits for the children of a process that ignores SIGCHLD."""
    waited = ExitUsage(user_usec=300, reaped=1)
    seen = a_sample(1, cpu_total_usec=4_000, cpu_user_usec=3_000, cpu_system_usec=1_000)
    usage = usage_in_group(seen, exit_usage=waited, lower_bounds=GROWING, has_end=False)
    assert usage.cpu_total_usec == 4_000
    assert "cpu_total_usec" in usage.lower_bounds


@pytest.mark.parametrize("file_bytes", [0, None])
def test_a_peak_of_the_group_that_is_not_final_does_not_cap_the_largest_process(
    file_bytes: int | None,
) -> None:
    early = a_sample(
        1,
        memory_anon_bytes=2 * MIB,
        memory_file_bytes=file_bytes,
        memory_kernel_peak_bytes=3 * MIB,
        memory_largest_process_bytes=2 * MIB,
        memory_largest_process_file_bytes=MIB,
    )
    waited = ExitUsage(max_rss_bytes=208 * MIB, rss_floor_bytes=9 * MIB, reaped=1)
    usage = usage_in_group(early, exit_usage=waited, lower_bounds=GROWING, has_end=False)
    assert usage.memory_largest_process_bytes == 208 * MIB
    assert usage.memory_peak_bytes == 207 * MIB
    assert (usage.memory_kernel_peak_bytes or 0) >= 207 * MIB
    assert {"memory_peak_bytes", "memory_kernel_peak_bytes"} <= {*usage.lower_bounds}
