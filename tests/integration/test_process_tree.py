"""The process tree probe on real processes, where no control group helps."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from joblens.model.errors import ProbeError
from joblens.model.jobs.sample import Sample
from joblens.probes.proc.attached import BaselinedProbe
from joblens.probes.proc.process_tree import ProcessTreeProbe
from joblens.probes.proc.processes import DescriptorBudget

MIB = 1 << 20

# A launcher as joblens has one: adopts orphans, starts the job, waits for everything.
LAUNCHER = """
import ctypes, json, os, subprocess, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
job = subprocess.Popen([sys.executable, "-I", "-S", "-c", sys.argv[1]])
print(job.pid, flush=True)
reaped = 0.0
while True:
    try:
        pid, status, usage = os.wait4(-1, 0)
    except ChildProcessError:
        break
    reaped += usage.ru_utime + usage.ru_stime
    print(json.dumps({"pid": pid, "reaped_usec": round(reaped * 1e6)}), flush=True)
"""
BURN = """
import os, signal, sys, time
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
"""


class Launched:
    def __init__(self, code: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCHER, BURN + code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.job_pid = int(self.line())
        self.probe = ProcessTreeProbe(self.process.pid, include_root=False)

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def let_go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def finish(self) -> int:
        """µs that the launcher's wait4 calls gave in all."""
        out, _ = self.process.communicate()
        return int(json.loads(out.splitlines()[-1])["reaped_usec"])

    def end(self) -> None:
        for pid in self.probe.descendants():
            os.kill(pid, 9)
        self.process.kill()
        self.process.communicate()
        self.probe.close()


@pytest.fixture
def launch() -> Iterator[Callable[[str], Launched]]:
    launched: list[Launched] = []

    def start(code: str) -> Launched:
        launched.append(Launched(code))
        return launched[-1]

    yield start
    for each in launched:
        each.end()


def test_the_living_and_the_reaped_add_up_to_what_wait4_says(
    launch: Callable[[str], Launched], wait_until: Callable[..., Any]
) -> None:
    code = """
for _ in range(100):
    if os.fork() == 0:
        burn(0.002); os._exit(0)
    os.wait()
print("forked", flush=True)
sys.stdin.readline()
"""
    job = launch(code)
    assert job.line() == "forked\n"
    living_usec = job.probe.read()["cpu_total_usec"]
    job.let_go_on()
    truth_usec = job.finish()
    assert living_usec == pytest.approx(truth_usec, rel=0.05, abs=40_000)  # clock ticks of 10 ms


def test_a_daemonised_child_stays_in_the_tree(
    launch: Callable[[str], Launched], wait_until: Callable[..., Any]
) -> None:
    code = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        burn(0.1)
        signal.pause()
    os._exit(0)
os.wait()
os._exit(0)
"""
    job = launch(code)
    wait_until(lambda: job.job_pid not in job.probe.descendants(), what="the main process to end")
    wait_until(lambda: job.probe.read()["cpu_total_usec"] >= 80_000, what="its CPU time")
    assert job.probe.read()["processes"] == 1


def test_more_children_than_one_page_holds_are_all_found(
    launch: Callable[[str], Launched], wait_until: Callable[..., Any]
) -> None:
    job = launch("for _ in range(800):\n  if os.fork() == 0: signal.pause()\nsignal.pause()")
    wait_until(lambda: len(job.probe.descendants()) == 801, what="801 processes")
    assert job.probe.read()["processes"] == 801


def test_children_of_a_parent_that_ignores_sigchld_count_as_far_as_seen_and_are_marked(
    launch: Callable[[str], Launched], wait_until: Callable[..., Any]
) -> None:
    code = """
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
if os.fork() == 0:
    burn(0.2)
    print("burnt", flush=True)
    sys.stdin.readline()
    os._exit(0)
signal.pause()
"""
    job = launch(code)
    assert job.line() == "burnt\n"
    before = job.probe.read()["cpu_total_usec"]
    assert before >= 180_000  # whole clock ticks of 10 ms, user and system each
    job.let_go_on()
    wait_until(lambda: len(job.probe.descendants()) == 1, what="the child to vanish unwaited")
    assert job.probe.read()["cpu_total_usec"] >= before
    assert "cpu" in job.probe.lower_bounds


def test_zombies_keep_their_cpu_time_but_are_no_processes(
    launch: Callable[[str], Launched], wait_until: Callable[..., Any]
) -> None:
    job = launch("if os.fork() == 0:\n  burn(0.1); os._exit(0)\nsignal.pause()")
    wait_until(lambda: job.probe.read()["cpu_total_usec"] >= 80_000, what="the burner")
    wait_until(lambda: job.probe.read()["processes"] == 1, what="the burner to be a zombie")
    reading = job.probe.read()
    assert reading["cpu_total_usec"] >= 80_000
    assert job.probe.descendants() == [job.job_pid]


def test_a_spike_between_two_readings_is_in_the_largest_process(
    launch: Callable[[str], Launched], wait_until: Callable[..., Any]
) -> None:
    job = launch("x = bytearray(b'x') * (100 << 20); del x\nprint('over', flush=True)\nsignal.pause()")
    assert job.line() == "over\n"
    reading = job.probe.read()
    assert 100 * MIB <= reading["memory_largest_process_bytes"] < 125 * MIB
    assert reading["memory_anon_bytes"] < 30 * MIB


def test_pages_that_forked_children_share_are_counted_once(
    launch: Callable[[str], Launched], wait_until: Callable[..., Any]
) -> None:
    code = """
held = bytearray(b"x") * (60 << 20)
for _ in range(4):
    if os.fork() == 0:
        signal.pause()
signal.pause()
"""
    job = launch(code)
    wait_until(lambda: job.probe.read()["processes"] == 5, what="five processes")
    anon = wait_until(
        lambda: (reading := job.probe.read()["memory_anon_bytes"]) < 100 * MIB and reading,
        what="the shares to be known",
    )
    assert anon >= 60 * MIB


def test_shared_memory_is_counted_once_however_many_map_it(
    launch: Callable[[str], Launched], wait_until: Callable[..., Any]
) -> None:
    code = """
import mmap
shared = mmap.mmap(-1, 40 << 20)
shared.write(b"x" * (40 << 20))
for _ in range(3):
    if os.fork() == 0:
        sum(shared[i] for i in range(0, 40 << 20, 4096))
        print("mapped", flush=True)
        signal.pause()
signal.pause()
"""
    job = launch(code)
    for _ in range(3):
        job.line()
    wait_until(lambda: job.probe.read()["processes"] == 4, what="four processes")
    reading = job.probe.read()
    assert 40 * MIB <= reading["memory_shmem_bytes"] < 50 * MIB


@pytest.mark.parametrize("name", ["a b) c", ") R 1 1", "x (y"])
def test_command_names_with_blanks_and_parentheses_do_not_shift_the_numbers(
    name: str, tmp_path: Path, processes_to_end: list[subprocess.Popen[Any]]
) -> None:
    sleep = shutil.which("sleep")
    assert sleep is not None
    os.symlink(sleep, tmp_path / name)
    root = subprocess.Popen(["sh", "-c", '"$0" 60 & read x', str(tmp_path / name)], stdin=subprocess.PIPE)
    processes_to_end.append(root)
    probe = ProcessTreeProbe(root.pid, include_root=True)
    while len(probe.descendants()) < 1:
        pass
    reading = probe.read()
    assert reading["processes"] == 2
    assert reading["threads"] == 2
    for pid in probe.descendants():
        os.kill(pid, 9)
    probe.close()


def test_with_the_root_included_its_own_numbers_count() -> None:
    probe = ProcessTreeProbe(os.getpid(), include_root=True)
    first = probe.read()
    sum(range(3_000_000))
    second = probe.read()
    assert first["processes"] >= 1
    assert second["cpu_total_usec"] > first["cpu_total_usec"]
    assert set(second) <= set(Sample.__struct_fields__)
    assert set(second).isdisjoint(probe.unknown)
    probe.close()


def test_a_process_that_does_not_exist_cannot_be_measured() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    with pytest.raises(ProbeError, match="no process"):
        ProcessTreeProbe(gone.pid, include_root=True)


@pytest.mark.parametrize("descriptors", [0, 3, 1000])
def test_any_descriptor_budget_gives_the_same_numbers(
    descriptors: int, launch: Callable[[str], Launched], wait_until: Callable[..., Any]
) -> None:
    job = launch("for _ in range(5):\n  if os.fork() == 0: signal.pause()\nsignal.pause()")
    budget = DescriptorBudget(descriptors)
    probe = ProcessTreeProbe(job.process.pid, include_root=False, budget=budget)
    wait_until(lambda: probe.read()["processes"] == 6, what="six processes")
    assert budget.taken <= descriptors
    probe.close()
    assert budget.taken == 0


@pytest.mark.root
def test_it_works_for_someone_without_rights() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to become someone else")
    code = """
import ctypes, json, os, subprocess
from joblens.probes.proc.process_tree import ProcessTreeProbe
os.setgroups([]); os.setgid(65534); os.setuid(65534)
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # orphans come to this process, as to a launcher
job = subprocess.Popen(["sh", "-c", "(sleep 60 &) ; sleep 60"])
probe = ProcessTreeProbe(os.getpid(), include_root=False)
def programs():
    for pid in probe.descendants():
        try:
            with open(f"/proc/{pid}/comm") as file:
                yield file.read().strip()
        except OSError:
            pass  # the subshell, which ends at once
while list(programs()).count("sleep") < 2:
    pass
reading = probe.read()
while left := probe.descendants():
    for pid in left:
        os.kill(pid, 9)
    os.wait()
print(json.dumps(reading))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    reading = json.loads(done.stdout)
    assert reading["processes"] >= 2
    assert reading["io_call_reads"] > 0
    assert reading["memory_anon_bytes"] > 0
    assert reading["open_files"] > 0


@pytest.mark.root
def test_what_another_users_process_hides_is_unknown_and_not_zero(
    processes_to_end: list[subprocess.Popen[Any]],
) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to become someone else")
    # A root process below an ordinary user's one, as after sudo.
    root = subprocess.Popen(["sh", "-c", "sleep 60 & read x"], stdin=subprocess.PIPE)
    processes_to_end.append(root)
    code = f"""
import json, os
from joblens.probes.proc.process_tree import ProcessTreeProbe
os.setgroups([]); os.setgid(65534); os.setuid(65534)
probe = ProcessTreeProbe({root.pid}, include_root=True)
while len(probe.descendants()) < 1:
    pass
print(json.dumps([probe.read(), probe.unknown, probe.descendants()]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    reading, unknown, below = json.loads(done.stdout)
    assert "io_call_reads" not in reading
    assert "no permission" in unknown["io_call_reads"]
    assert reading["cpu_total_usec"] >= 0
    os.kill(below[0], 9)


def test_who_asks_for_the_descendants_takes_nothing_from_the_next_reading(
    launch: Callable[[str], Launched],
) -> None:
    code = """
print("small", flush=True)
sys.stdin.readline()
held = open("/dev/urandom", "rb", buffering=0).read(40 << 20)
burn(0.05)  # its stat line has changed
print("large", flush=True)
sys.stdin.readline()
"""
    job = launch(code)
    assert job.line() == "small\n"
    job.probe.descendants()
    small = job.probe.read()
    job.let_go_on()
    assert job.line() == "large\n"
    for _ in range(3):
        job.probe.descendants()
    large = job.probe.read()
    assert large["memory_anon_bytes"] - small["memory_anon_bytes"] > 35 * MIB
    assert large["io_call_read_bytes"] - small["io_call_read_bytes"] >= 40 * MIB


def test_what_is_written_within_one_clock_tick_is_seen(
    launch: Callable[[str], Launched], tmp_path: Path
) -> None:
    """The stat line of a process that hardly runs stands still although it reads and writes."""
    code = f"""
out = open({str(tmp_path / "out")!r}, "wb", buffering=0)
while True:
    print("written", flush=True)
    sys.stdin.readline()
    out.write(b"x" * 1000)
"""
    job = launch(code)
    assert job.line() == "written\n"
    before = job.probe.read()["io_call_write_bytes"]
    for times in range(1, 4):
        job.let_go_on()
        assert job.line() == "written\n"
        assert job.probe.read()["io_call_write_bytes"] - before >= times * 1000


def test_the_last_reading_is_of_everyone_however_many_stand_still(
    launch: Callable[[str], Launched], wait_until: Callable[..., Any]
) -> None:
    code = """
for _ in range(150):
    if os.fork() == 0:
        held = os.dup(0)
        signal.sigwait({signal.SIGUSR1})
        os.write(os.open("/dev/null", os.O_WRONLY), b"x" * 1000)
        signal.pause()
signal.pause()
"""
    job = launch(code.replace("for _", "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})\nfor _"))
    wait_until(lambda: job.probe.read()["processes"] == 151, what="all to be there")
    job.probe.read()
    before = job.probe.read()["io_call_write_bytes"]
    for pid in job.probe.descendants():
        if pid != job.job_pid:
            os.kill(pid, 10)
    wait_until(lambda: _written(job) >= 150_000, what="all to have written")
    job.probe.scan_all()
    assert job.probe.read()["io_call_write_bytes"] - before >= 150_000


def _written(job: Launched) -> int:
    """As the kernel has it."""
    return sum(
        int(line.split()[1])
        for pid in job.probe.descendants()
        for line in Path(f"/proc/{pid}/io").read_text().splitlines()
        if line.startswith("wchar")
    )


@pytest.mark.root
def test_what_is_hidden_stays_unknown_in_every_reading_and_comes_back_as_no_sum_from_before(
    processes_to_end: list[subprocess.Popen[Any]],
) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to become someone else")
    # A root process with a child of an ordinary user that has written before anyone looked.
    child = (
        "import os; os.setgroups([]); os.setgid(65534); os.setuid(65534);"
        "os.write(os.open('/dev/null', 1), b'x' * 100000); print(1, flush=True);"
        "import time; time.sleep(60)"
    )
    parent = f"""
import os, subprocess, sys, time
quiet = subprocess.Popen([sys.executable, "-c", {child!r}])
time.sleep(60)
"""
    root = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE)
    processes_to_end.append(root)
    assert root.stdout is not None
    root.stdout.readline()
    code = f"""
import json, os
from joblens.probes.proc.attached import BaselinedProbe
from joblens.probes.proc.process_tree import ProcessTreeProbe
os.setgroups([]); os.setgid(65534); os.setuid(65534)
probe = BaselinedProbe(ProcessTreeProbe({root.pid}, include_root=True))
readings = [probe.read() for _ in range(7)]
print(json.dumps([readings, probe.unknown, probe.descendants()]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    readings, unknown, below = json.loads(done.stdout)
    try:
        assert [name for reading in readings for name in reading if name.startswith("io_")] == []
        assert "no permission" in unknown["io_write_bytes"]
    finally:
        os.kill(below[0], 9)


class _HiddenAtFirst:
    name = "double"

    def __init__(self) -> None:
        self.sources: dict[str, str] = {}
        self.unknown: dict[str, str] = {}
        self._readings = iter([{"cpu_total_usec": 1}, {"cpu_total_usec": 2, "io_write_bytes": 100}])

    def read(self) -> dict[str, Any]:
        return dict(next(self._readings))

    def close(self) -> None:
        """Nothing is open."""


def test_sums_that_could_not_be_read_at_first_are_not_reported_later() -> None:
    probe = BaselinedProbe(_HiddenAtFirst())
    probe.read()
    assert "io_write_bytes" not in probe.unknown
    assert probe.read() == {"cpu_total_usec": 2}
    assert "when joblens attached" in probe.unknown["io_write_bytes"]
