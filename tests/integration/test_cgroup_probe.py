"""What the probes say about real jobs in real groups, against what is known of the jobs."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from joblens.agent.cgroups.groups import JobGroups
from joblens.agent.doctor.capabilities import probe_capabilities
from joblens.app.wiring.drivers import SystemClock
from joblens.model.errors import ProbeError
from joblens.model.jobs.sample import Sample
from joblens.model.values.ids import new_uuid
from joblens.probes.cgroup.counters import GROUPS_OF_CGROUPS
from joblens.probes.cgroup.probe import CgroupProbe
from joblens.probes.proc.processes import FIELD_GROUPS, DescriptorBudget, ProcessesProbe
from tests.integration.cgroup_jobs import make_groups, start_in, start_python_in, wait_usage
from tests.integration.test_cgroup_groups import v1_factory

pytestmark = pytest.mark.cgroup

MIB = 1 << 20
FORK_2000 = "i=0; while [ $i -lt 2000 ]; do (:); i=$((i+1)); done"


@pytest.fixture
def groups() -> Iterator[JobGroups]:
    yield from make_groups()


@pytest.fixture
def v1_groups() -> Iterator[JobGroups]:
    yield from make_groups(v1_factory())


@pytest.fixture
def probe(groups: JobGroups) -> Iterator[CgroupProbe]:
    reading = CgroupProbe(groups.paths, groups.kind)
    yield reading
    reading.close()


def needs(probe: CgroupProbe, group: str) -> None:
    if group not in probe.sources:
        pytest.skip(probe.unknown[FIELD_GROUPS[group][0]])


def test_cpu_time_of_two_thousand_short_children_is_counted_in_full(
    groups: JobGroups, probe: CgroupProbe
) -> None:
    _, truth_usec = wait_usage(start_in(groups, "sh", "-c", FORK_2000))
    # The start of the shell before it joins is not in the group: a few milliseconds.
    assert probe.read()["cpu_total_usec"] == pytest.approx(truth_usec, rel=0.01, abs=15_000)


def test_cpu_time_is_counted_in_full_by_v1_alone(v1_groups: JobGroups) -> None:
    probe = CgroupProbe(v1_groups.paths, v1_groups.kind)
    _, truth_usec = wait_usage(start_in(v1_groups, "sh", "-c", FORK_2000))
    reading = probe.read()
    assert reading["cpu_total_usec"] == pytest.approx(truth_usec, rel=0.01, abs=15_000)
    assert reading["cpu_user_usec"] + reading["cpu_system_usec"] == pytest.approx(truth_usec, rel=0.2)
    assert "no pressure" in probe.unknown["cpu_some_usec"]
    probe.close()


def test_a_short_spike_between_two_readings_is_in_the_peak(groups: JobGroups, probe: CgroupProbe) -> None:
    needs(probe, "memory_kernel_peak")
    before = probe.read()
    assert start_python_in(groups, "x = bytearray(b'x') * (200 << 20); del x").wait() == 0
    after = probe.read()
    assert before["memory_kernel_peak_bytes"] < 20 * MIB
    assert 200 * MIB < after["memory_kernel_peak_bytes"] < 230 * MIB
    assert after["memory_anon_bytes"] < 20 * MIB


def test_anonymous_memory_shared_memory_and_page_cache_are_distinguished(
    groups: JobGroups, probe: CgroupProbe, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    needs(probe, "memory_parts")
    code = f"""
import mmap, os, sys
anon = bytearray(b"x") * (40 << 20)
shared = mmap.mmap(-1, 30 << 20)
shared.write(b"y" * (30 << 20))
with open({str(tmp_path / "file")!r}, "wb") as file:
    for _ in range(20):
        file.write(b"z" * (1 << 20))
    os.fsync(file.fileno())
print("ready", flush=True)
sys.stdin.read()
"""
    job = start_python_in(groups, code, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert job.stdout is not None
    job.stdout.readline()
    # The kernel adds up its per-CPU counters only every two seconds.
    wait_until(lambda: probe.read()["memory_shmem_bytes"] > 25 * MIB, what="the kernel to add up")
    reading = probe.read()
    assert reading["memory_anon_bytes"] == pytest.approx(44 * MIB, rel=0.15)
    assert reading["memory_shmem_bytes"] == pytest.approx(30 * MIB, rel=0.1)
    assert reading["memory_file_bytes"] >= reading["memory_shmem_bytes"]
    assert reading["memory_current_bytes"] >= 70 * MIB
    job.communicate()


def test_an_out_of_memory_kill_is_counted(groups: JobGroups) -> None:
    if not groups.set_limits(memory_bytes=50 * MIB):
        pytest.skip(groups.limit_gaps["memory"])
    probe = CgroupProbe(groups.paths, groups.kind)
    assert probe.read()["oom_kills"] == 0
    start_python_in(groups, "x = bytearray(b'x') * (200 << 20)").wait()
    reading = probe.read()
    assert reading["oom_kills"] == 1
    assert reading["memory_limit_events"] > 0
    assert reading["memory_limit_bytes"] == 50 * MIB
    assert reading["memory_kernel_peak_bytes"] <= 50 * MIB
    probe.close()


def test_hitting_the_process_limit_is_counted(groups: JobGroups) -> None:
    if not groups.set_limits(pids=3):
        pytest.skip(groups.limit_gaps["pids"])
    probe = CgroupProbe(groups.paths, groups.kind)
    start_in(groups, "sh", "-c", "sleep 9 & sleep 9 & sleep 9 & sleep 9 &", stderr=subprocess.DEVNULL).wait()
    reading = probe.read()
    assert reading["pids_limit_events"] >= 1
    assert reading["pids_limit"] == 3
    probe.close()


def test_throttled_time_grows_under_a_cpu_limit(groups: JobGroups) -> None:
    if not groups.set_limits(cpus=0.2):
        pytest.skip(groups.limit_gaps["cpus"])
    probe = CgroupProbe(groups.paths, groups.kind)
    burn = "import time\nend = time.process_time() + 0.15\nwhile time.process_time() < end: pass"
    assert start_python_in(groups, burn).wait() == 0
    reading = probe.read()
    assert reading["cpu_throttled_usec"] > 0
    assert 0 < reading["cpu_throttled_periods"] <= reading["cpu_periods"]
    probe.close()


def test_a_double_forked_child_counts_after_its_parent_is_gone(
    groups: JobGroups, probe: CgroupProbe, wait_until: Callable[..., Any]
) -> None:
    burn = "import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass"
    line = f"(setsid {sys.executable} -I -S -c '{burn}' >/dev/null 2>&1 &)"
    start_in(groups, "sh", "-c", line).wait()
    wait_until(groups.is_empty, what="the daemon to end")
    assert probe.read()["cpu_total_usec"] > 200_000


def test_processes_and_threads_are_counted(
    groups: JobGroups, probe: CgroupProbe, wait_until: Callable[..., Any]
) -> None:
    code = (
        "import _thread, time\nfor _ in range(4): _thread.start_new_thread(time.sleep, (60,))\ntime.sleep(60)"
    )
    job = start_python_in(groups, code)
    needs(probe, "threads")
    wait_until(lambda: probe.read()["threads"] == 5, what="five threads")
    assert probe.read()["processes"] == 1
    groups.kill()
    job.wait()


def test_more_processes_than_one_page_holds_are_all_counted(
    groups: JobGroups, probe: CgroupProbe, wait_until: Callable[..., Any]
) -> None:
    code = "import os, signal\nfor _ in range(900):\n  if os.fork() == 0: signal.pause()\nsignal.pause()"
    job = start_python_in(groups, code)
    wait_until(lambda: probe.read()["processes"] == 901, what="901 processes")
    assert len(groups.pids()) == 901
    groups.kill()
    job.wait()


def test_direct_writes_are_counted_by_device(groups: JobGroups, probe: CgroupProbe, tmp_path: Path) -> None:
    needs(probe, "io_devices")
    code = f"""
import mmap, os
page = mmap.mmap(-1, 1 << 20)
fd = os.open({str(tmp_path / "direct")!r}, os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
for _ in range(16):
    os.write(fd, page)
os.fsync(fd)
"""
    assert start_python_in(groups, code).wait() == 0
    reading = probe.read()
    assert reading["io_write_bytes"] == pytest.approx(16 * MIB, rel=0.1)
    assert reading["io_write_ops"] > 0
    assert sum(device.write_bytes for device in reading["devices"].values()) >= 16 * MIB


def test_every_group_of_numbers_is_either_read_or_explained(groups: JobGroups, probe: CgroupProbe) -> None:
    for group in GROUPS_OF_CGROUPS:
        explained = all(probe.unknown.get(field) for field in FIELD_GROUPS[group])
        assert (group in probe.sources) != explained, group
    given = set(probe.read())
    assert given <= set(Sample.__struct_fields__)
    assert given.isdisjoint(probe.unknown)


def test_a_group_that_is_gone_is_an_error_and_not_zero(groups: JobGroups, probe: CgroupProbe) -> None:
    groups.remove()
    with pytest.raises(ProbeError, match="cannot be read"):
        probe.read()
    with pytest.raises(ProbeError, match="is not there"):
        CgroupProbe(groups.paths, groups.kind)


def test_without_descriptors_to_spare_the_numbers_are_the_same(groups: JobGroups) -> None:
    budget = DescriptorBudget(3)
    lean = CgroupProbe(groups.paths, groups.kind, budget=budget)
    full = CgroupProbe(groups.paths, groups.kind)
    assert start_in(groups, "true").wait() == 0
    assert lean.read().keys() == full.read().keys()
    assert lean.read()["cpu_total_usec"] == full.read()["cpu_total_usec"]
    assert budget.taken == 3
    lean.close()
    full.close()
    assert budget.taken == 0


def test_calls_and_descriptors_of_living_processes_are_added_up(
    groups: JobGroups, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    code = f"""
import os, signal
if os.fork() == 0:
    fd = os.open({str(tmp_path / "out")!r}, os.O_WRONLY | os.O_CREAT)
    for _ in range(10):
        os.write(fd, b"x" * 100_000)
    signal.pause()
files = [open("/dev/null") for _ in range(20)]
signal.pause()
"""
    job = start_python_in(groups, code)
    processes = ProcessesProbe(groups.pids)
    wait_until(lambda: processes.read()["io_call_write_bytes"] >= 1_000_000, what="all writes")
    wait_until(lambda: processes.read()["open_files"] >= 27, what="all files")
    reading = processes.read()
    assert reading["io_call_writes"] >= 10
    assert reading["memory_largest_process_bytes"] > 2 * MIB
    assert reading["open_files_limit"] > 0
    groups.kill()
    job.wait()
    assert processes.read()["io_call_write_bytes"] == 0
    processes.close()


def test_what_a_process_has_reaped_is_in_its_own_io(
    groups: JobGroups, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    code = f"""
import os, signal, sys
if os.fork() == 0:
    with open({str(tmp_path / "out")!r}, "wb") as file:
        file.write(b"x" * 500_000)
    os._exit(0)
os.wait()
print("reaped", flush=True)
signal.pause()
"""
    job = start_python_in(groups, code, stdout=subprocess.PIPE)
    assert job.stdout is not None
    assert job.stdout.readline() == b"reaped\n"
    processes = ProcessesProbe(groups.pids)
    assert 500_000 <= processes.read()["io_call_write_bytes"] < 600_000
    processes.close()
    groups.kill()
    job.communicate()


def test_the_matrix_names_a_mechanism_or_a_reason_for_everything(groups: JobGroups) -> None:
    matrix = probe_capabilities(SystemClock())
    areas = {"accounting", "numbers", "limits", "ending", "output", "containers"}
    assert {row.area for row in matrix} == areas
    assert all(row.mechanism for row in matrix if row.available)
    assert all(row.reason for row in matrix if not row.available)
    numbers = {row.name: row for row in matrix if row.area == "numbers"}
    assert numbers.keys() >= {*FIELD_GROUPS, "network", "endpoints", "thread table", "memory in depth"}
    assert "cgroup" in numbers["cpu"].mechanism
    assert [row.name for row in matrix if row.name == groups.kind and row.available] == [groups.kind]


def test_cgroup_kinds_of_other_machines_are_no_gaps(groups: JobGroups) -> None:
    kinds = [row for row in probe_capabilities(SystemClock()) if row.name.startswith("cgroup-")]
    assert len(kinds) == 3
    assert [row.name for row in kinds if row.applies] == [groups.kind]
    assert not any(row.is_gap for row in kinds)


def test_looking_at_capabilities_leaves_nothing_behind(
    groups: JobGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [new_uuid(), new_uuid()]
    unused = iter(names)
    monkeypatch.setattr("joblens.agent.doctor.accounting.new_uuid", lambda: next(unused))
    children = _children()
    probe_capabilities(SystemClock())
    assert next(unused, None) is None
    parents = {os.path.dirname(path) for path in groups.paths.values()}
    left = [name for parent in parents for name in os.listdir(parent)]
    assert not any(uuid in name for uuid in names for name in left)
    assert _children() == children


def _children() -> str:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text()
