"""Texts of cgroup files, as kernels of different age write them."""

from hypothesis import given
from hypothesis import strategies as st

from joblens.model.jobs.sample import DeviceIo, Sample
from joblens.probes.cgroup import counters

PRESSURE = (
    b"some avg10=1.50 avg60=0.07 avg300=100.00 total=123456\nfull avg10=0.00 avg60=0.01 avg300=0.00 total=9\n"
)


def test_cpu_time_and_throttling_come_from_cpu_stat() -> None:
    text = b"usage_usec 100\nuser_usec 60\nsystem_usec 40\nnr_periods 5\nnr_throttled 2\nthrottled_usec 700\n"
    assert counters.parse_cpu_stat(text) == {
        "cpu_total_usec": 100,
        "cpu_user_usec": 60,
        "cpu_system_usec": 40,
        "cpu_periods": 5,
        "cpu_throttled_periods": 2,
        "cpu_throttled_usec": 700,
    }


def test_without_the_cpu_controller_there_is_no_throttling_rather_than_none_of_it() -> None:
    stat = counters.parse_cpu_stat(b"usage_usec 1\nuser_usec 1\nsystem_usec 0\n")
    assert stat["cpu_total_usec"] == 1
    assert "cpu_throttled_usec" not in stat


def test_v1_throttled_time_is_turned_into_microseconds() -> None:
    text = b"nr_periods 9\nnr_throttled 4\nthrottled_time 1234567\nnr_bursts 0\nburst_time 0\n"
    assert counters.parse_cpu_stat_v1(text)["cpu_throttled_usec"] == 1234


def test_v1_cpu_accounts_are_turned_into_microseconds() -> None:
    assert counters.parse_cpuacct_usage(b"1999999\n") == {"cpu_total_usec": 1999}
    stat = counters.cpuacct_stat_parser(10_000)(b"user 3\nsystem 2\n")
    assert stat == {"cpu_user_usec": 30_000, "cpu_system_usec": 20_000}


def test_pressure_averages_are_hundredths_of_a_percent() -> None:
    fields = counters.pressure_parser("memory")(PRESSURE)
    assert fields["memory_some_avg10"] == 150
    assert fields["memory_some_avg60"] == 7
    assert fields["memory_some_avg300"] == 10_000
    assert fields["memory_some_usec"] == 123456
    assert fields["memory_full_usec"] == 9


def test_a_kernel_that_writes_only_some_gives_only_some() -> None:
    fields = counters.pressure_parser("cpu")(PRESSURE.splitlines()[0])
    assert fields["cpu_some_usec"] == 123456
    assert not any("full" in name for name in fields)


def test_v2_memory_stat_gives_the_parts_and_minor_faults_without_major() -> None:
    text = (
        b"anon 10\nfile 20\nkernel 30\nkernel_stack 4\nsock 1\nshmem 5\nslab 6\npgfault 100\npgmajfault 8\n"
    )
    fields = counters.parse_memory_stat_v2(text)
    assert fields["memory_anon_bytes"] == 10
    assert fields["memory_kernel_bytes"] == 30
    assert fields["memory_shmem_bytes"] == 5
    assert (fields["faults_minor"], fields["faults_major"]) == (92, 8)


def test_before_linux_5_18_kernel_memory_is_the_sum_of_its_parts() -> None:
    text = b"anon 10\nfile 20\nkernel_stack 4\npagetables 3\npercpu 2\nsock 1\nslab 6\n"
    assert counters.parse_memory_stat_v2(text)["memory_kernel_bytes"] == 15


def test_v1_memory_stat_takes_the_totals_with_subgroups() -> None:
    text = b"cache 1\nrss 2\nshmem 0\ntotal_cache 50\ntotal_rss 20\ntotal_shmem 7\ntotal_swap 3\n"
    text += b"total_pgfault 9\ntotal_pgmajfault 1\n"
    assert counters.parse_memory_stat_v1(text) == {
        "memory_anon_bytes": 20,
        "memory_file_bytes": 50,
        "memory_shmem_bytes": 7,
        "memory_swap_bytes": 3,
        "faults_major": 1,
        "faults_minor": 8,
    }


def test_huge_pages_are_unknown_where_the_kernel_has_no_line_for_them() -> None:
    v2, v1 = counters.parse_memory_stat_v2, counters.parse_memory_stat_v1
    assert v2(b"anon 5\nanon_thp 2097152\nfile_thp 0\nshmem_thp 4194304\n")["memory_huge_bytes"] == 6291456
    assert "memory_huge_bytes" not in v2(b"anon 5\n")
    assert v1(b"rss_huge 1\ntotal_rss_huge 2097152\n")["memory_huge_bytes"] == 2097152
    assert "memory_huge_bytes" not in v1(b"rss 1\ntotal_rss 1\n")


def test_events_tell_limits_reached_from_kills() -> None:
    text = b"low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n"
    assert counters.parse_memory_events(text) == {
        "oom_events": 3,
        "oom_kills": 2,
        "memory_limit_events": 12,
    }
    assert counters.parse_oom_control_v1(b"oom_kill_disable 0\nunder_oom 0\noom_kill 4\n") == {"oom_kills": 4}
    assert counters.parse_oom_control_v1(b"oom_kill_disable 0\nunder_oom 0\n") == {}


def test_no_limit_is_no_number() -> None:
    assert counters.single_value("pids_limit")(b"max\n") == {}
    assert counters.single_value("pids_limit")(b"7\n") == {"pids_limit": 7}
    assert counters.parse_limit_v1(b"9223372036854771712\n") == {}
    assert counters.parse_limit_v1(b"1048576\n") == {"memory_limit_bytes": 1048576}


def test_io_is_kept_by_device_and_devices_without_a_count_are_left_out() -> None:
    text = b"8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6\n253:1 \n7:0 cost.usage=3\n"
    assert counters.parse_io_stat(text) == {"8:0": DeviceIo(1, 2, 3, 4, 5, 6)}
    assert counters.parse_io_stat(b"") == {}


@given(st.integers(0, 10_000), st.integers(0, 2**63 - 1))
def test_any_pressure_the_kernel_can_print_comes_back(hundredths: int, total: int) -> None:
    average = f"{hundredths // 100}.{hundredths % 100:02d}"
    line = f"some avg10={average} avg60={average} avg300={average} total={total}\n".encode()
    fields = counters.pressure_parser("io")(line)
    assert set(fields.values()) <= {hundredths, total}
    assert fields["io_some_usec"] == total
    assert set(fields) <= set(Sample.__struct_fields__)
