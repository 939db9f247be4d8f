"""Texts of /proc files, and a /proc made of them."""

import os
from pathlib import Path

import pytest

from joblens.probes.cgroup.layout import parse_layout
from joblens.probes.host.machine_load import (
    CostLimit,
    HostProbe,
    cpu_quota,
    parse_host_cpu,
    parse_loadavg,
    parse_meminfo,
    read_host,
)
from joblens.probes.proc.kernel_files import (
    PAGE_BYTES,
    USEC_PER_TICK,
    ProcIo,
    parse_io,
    parse_smaps_rollup,
    parse_soft_open_files,
    parse_stat,
    parse_statm,
    parse_status,
)
from joblens.probes.proc.process_tree import ProcessTreeProbe

STATUS = b"Name:\tx\nVmHWM:\t    2048 kB\nRssShmem:\t  12 kB\nVmSwap:\t 4 kB\nSigIgn:\t0000000000010000\n"


def stat_line(
    pid: int, parent: int, *, name: str = "job", state: str = "S", ticks: int = 5, start: int = 77
) -> str:
    before = f"{pid} ({name}) {state} {parent} 1 1 0 -1 4194304 10 20 1 2 "
    return (
        before
        + f"{ticks} {ticks} {ticks} {ticks} 20 0 3 0 {start} 8192 50 18446744073709551615 1 1 999 0 0\n"
    )


def make_process(proc: Path, pid: int, parent: int, **stat: object) -> None:
    folder = proc / str(pid)
    (folder / "fd").mkdir(parents=True, exist_ok=True)
    (folder / "stat").write_text(stat_line(pid, parent, **stat))  # type: ignore[arg-type]
    (folder / "statm").write_text("2 30 10 1 0 5 0\n")
    (folder / "status").write_bytes(STATUS)
    counts = (("rchar", 10), ("wchar", 20), ("syscr", 1), ("syscw", 2), ("read_bytes", 3), ("write_bytes", 4))
    lines = [f"{name}: {value}\n" for name, value in counts]
    (folder / "io").write_text("".join(lines) + "cancelled_write_bytes: 0\n")
    (folder / "limits").write_text("Limit  Soft Hard Units\nMax open files  1024  4096  files\n")


@pytest.mark.parametrize("name", ["job", "a b", "a) S 1", "((", "x (y) z"])
def test_a_stat_line_is_read_whatever_the_command_is_called(name: str) -> None:
    stat = parse_stat(stat_line(9, 4, name=name).encode())
    assert (stat.state, stat.parent_pid, stat.start_ticks) == ("S", 4, 77)
    assert (stat.user_ticks, stat.system_ticks_reaped) == (5, 5)
    assert (stat.threads, stat.virtual_bytes, stat.stack_start) == (3, 8192, 999)
    assert (stat.faults_minor, stat.faults_minor_reaped, stat.faults_major, stat.faults_major_reaped) == (
        10,
        20,
        1,
        2,
    )


@pytest.mark.parametrize(
    ("state", "alive"), [("R", True), ("D", True), ("T", True), ("Z", False), ("X", False)]
)
def test_zombies_are_not_alive(state: str, alive: bool) -> None:
    assert parse_stat(stat_line(9, 4, state=state).encode()).is_alive is alive


def test_anonymous_memory_is_resident_less_shared() -> None:
    statm = parse_statm(b"2 30 10 1 0 5 0\n")
    assert (statm.virtual_bytes, statm.anon_bytes) == (2 * PAGE_BYTES, 20 * PAGE_BYTES)


def test_status_gives_peak_and_whether_sigchld_is_ignored() -> None:
    status = parse_status(STATUS)
    assert status.peak_bytes == 2 << 20
    assert status.shmem_bytes == 12 << 10
    assert status.ignores_sigchld
    assert not parse_status(STATUS.replace(b"010000", b"020000")).ignores_sigchld
    assert parse_status(b"Name:\tx\nState:\tZ\n").peak_bytes is None


def test_shares_are_read_only_where_the_kernel_divides_them() -> None:
    text = b"55-7ff ---p 0 [rollup]\nRss: 100 kB\nPss: 60 kB\nAnonymous: 50 kB\n"
    assert parse_smaps_rollup(text).pss_anon is None
    rollup = parse_smaps_rollup(text + b"Pss_Anon: 25 kB\nPss_File: 1 kB\nPss_Shmem: 2 kB\n")
    assert (rollup.anon, rollup.pss_anon, rollup.pss_shmem) == (50 << 10, 25 << 10, 2 << 10)


ROLLUP = b"""556a70a15000-7ffcf39e6000 ---p 00000000 00:00 0                          [rollup]
Rss:                1740 kB
Pss:                 308 kB
Pss_Dirty:           112 kB
Shared_Clean:       1500 kB
Shared_Dirty:         68 kB
Private_Clean:        60 kB
Private_Dirty:       112 kB
AnonHugePages:      2048 kB
ShmemPmdMapped:     4096 kB
FilePmdMapped:         0 kB
Shared_Hugetlb:       16 kB
Private_Hugetlb:       8 kB
Swap:                  4 kB
SwapPss:               1 kB
"""


def test_the_sums_of_a_process_are_in_bytes() -> None:
    rollup = parse_smaps_rollup(ROLLUP)
    assert (rollup.pss, rollup.rss) == (308 * 1024, 1740 * 1024)
    assert (rollup.private, rollup.shared) == (172 * 1024, 1568 * 1024)
    assert rollup.private_dirty == 112 * 1024
    assert (rollup.swap, rollup.huge) == (4 * 1024, 6144 * 1024)
    assert (rollup.hugetlb_private, rollup.hugetlb_shared) == (8 * 1024, 16 * 1024)


def test_io_and_limits() -> None:
    text = (
        b"rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\ncancelled_write_bytes: 7\n"
    )
    assert parse_io(text) == ProcIo(1, 2, 3, 4, 5, 6)
    assert parse_soft_open_files(b"x\nMax open files            1024   4096   files\n") == 1024
    assert parse_soft_open_files(b"x\nMax open files            unlimited  unlimited  files\n") is None


def test_without_child_lists_the_tree_is_found_by_the_parents(tmp_path: Path) -> None:
    for pid, parent in ((100, 1), (101, 100), (102, 101), (200, 1)):
        make_process(tmp_path, pid, parent)
    probe = ProcessTreeProbe(100, include_root=False, proc=str(tmp_path))
    reading = probe.read()
    assert sorted(probe.descendants()) == [101, 102]
    assert reading["processes"] == 2
    assert reading["threads"] == 6
    assert reading["cpu_total_usec"] == 2 * 4 * 5 * USEC_PER_TICK
    assert reading["io_call_write_bytes"] == 40
    assert reading["memory_largest_process_bytes"] == 2 << 20
    assert reading["open_files_limit"] == 1024
    probe.close()


def test_a_pid_that_was_given_to_another_process_is_not_the_old_one(tmp_path: Path) -> None:
    make_process(tmp_path, 100, 1)
    make_process(tmp_path, 101, 100, ticks=50)
    probe = ProcessTreeProbe(100, include_root=False, proc=str(tmp_path))
    assert probe.descendants() == [101]
    make_process(tmp_path, 101, 1, ticks=1000, start=78)  # another process, not of this tree
    assert probe.descendants() == []
    assert probe.read()["cpu_total_usec"] == 0
    probe.close()


def test_an_orphan_that_was_seen_once_stays_a_member(tmp_path: Path) -> None:
    make_process(tmp_path, 100, 1)
    make_process(tmp_path, 101, 100)
    probe = ProcessTreeProbe(100, include_root=False, proc=str(tmp_path))
    assert probe.descendants() == [101]
    make_process(tmp_path, 101, 1)
    assert probe.descendants() == [101]
    probe.close()


def test_waiting_for_input_and_output_is_not_being_busy() -> None:
    fields = parse_host_cpu(b"cpu  100 10 50 1000 200 5 5 30 40 0\ncpu0 1 1 1 1\n")
    assert fields["host_cpu_total_usec"] == 1400 * USEC_PER_TICK
    assert fields["host_cpu_busy_usec"] == 200 * USEC_PER_TICK


def test_page_cache_is_not_used_memory() -> None:
    fields = parse_meminfo(b"MemTotal:  1000 kB\nMemFree:  100 kB\nMemAvailable:  600 kB\nBuffers: 1 kB\n")
    assert fields == {"host_memory_total_bytes": 1000 << 10, "host_memory_used_bytes": 400 << 10}


def test_load_is_in_hundredths() -> None:
    assert parse_loadavg(b"0.05 1.50 12.00 1/200 4242\n") == {
        "host_load1": 5,
        "host_load5": 150,
        "host_load15": 1200,
    }


def test_a_machine_without_a_file_leaves_its_numbers_out_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "loadavg").write_text("0.05 1.50 12.00 1/200 4242\n")
    probe = HostProbe(str(tmp_path))
    assert set(probe.read()) == {"host_load1", "host_load5", "host_load15"}
    assert "cannot read" in probe.unknown["host_cpu_busy_usec"]
    assert set(probe.sources) == {"host_load"}
    probe.close()


NET_DEV = "Inter-| Receive\n face |bytes\n  eth0: {} 9 0 0 0 0 0 0 70 5 0 0 0 0 0 0\n"


def test_what_the_machines_network_carried_is_of_the_moment_of_the_reading(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "dev").write_text(NET_DEV.format(1000))
    probe = HostProbe(str(tmp_path))
    probe.read()
    (tmp_path / "net" / "dev").write_text(NET_DEV.format(2000))
    assert probe.read()["host_network_rx_bytes"] == 2000
    probe.close()


def test_a_machine_with_so_many_interfaces_that_they_cost_much_is_not_asked_all_the_time(
    tmp_path: Path,
) -> None:
    now_ns, cpu_ns = 0, iter((0, 1_000_000, 5_000_000, 5_000_000))
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "dev").write_text(NET_DEV.format(1000))
    limit = CostLimit(1 / 500, cheap_ns=200_000, mono_ns=lambda: now_ns, cpu_ns=lambda: next(cpu_ns))
    probe = HostProbe(str(tmp_path), limit)
    assert probe.read() == {"host_network_rx_bytes": 1000, "host_network_tx_bytes": 70}
    now_ns = 499_000_000
    assert probe.read() == {}, "what was read before is no reading of now"
    now_ns = 500_000_000
    assert probe.read() != {}, "a millisecond in half a second"
    assert limit.is_due(), "cheap readings are not limited"
    probe.close()


@pytest.mark.parametrize(
    ("outer", "inner", "allowed"),
    [
        ("max 100000", "max 100000", None),
        ("max 100000", "150000 100000", 1.5),
        ("50000 100000", "max 1", 0.5),
    ],
)
def test_a_cpu_quota_anywhere_above_counts(
    outer: str, inner: str, allowed: float | None, tmp_path: Path
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "cpu.max").write_text(outer + "\n")
    (tmp_path / "a" / "b" / "cpu.max").write_text(inner + "\n")
    layout = parse_layout("0::/a/b\n", f"30 23 0:26 / {tmp_path} rw - cgroup2 cgroup2 rw\n")
    assert cpu_quota(layout) == allowed


def test_a_v1_quota_counts_too(tmp_path: Path) -> None:
    (tmp_path / "cpu.cfs_quota_us").write_text("300000\n")
    (tmp_path / "cpu.cfs_period_us").write_text("100000\n")
    layout = parse_layout("1:cpu:/\n", f"30 23 0:26 / {tmp_path} rw - cgroup cgroup rw,cpu\n")
    assert cpu_quota(layout) == 3.0
    (tmp_path / "cpu.cfs_quota_us").write_text("-1\n")
    assert cpu_quota(layout) is None


def test_this_machine_is_described() -> None:
    facts = read_host()
    assert facts.hostname
    assert facts.kernel == os.uname().release
    assert facts.cpu_count is not None
    assert facts.cpu_count >= 1
    probe = HostProbe()
    assert probe.read()["host_memory_total_bytes"] == facts.memory_total_bytes
    probe.close()
