"""Numbers against the truth, with control groups and without."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from joblens.model.history import HistoryQuery
from joblens.model.jobs.sample import Sample
from joblens.stores.sqlite import SqliteStore
from tests.integration.run_jobs import MIB, PYTHON, Runner, runner

# What the job itself says it and all it waited for have used.
OWN_TRUTH = """
import resource
def used():
    parts = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in parts)
"""
BURN = """
import os, sys, time
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
"""


@pytest.fixture(params=["cgroup", "nobody"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Runner]:
    with runner(request.param, tmp_path) as one:
        yield one


def samples_of(run: Runner) -> list[Sample]:
    store = SqliteStore(str(run.store))
    try:
        record = next(store.records(HistoryQuery(limit=1)))
        return [sample for _, sample in store.samples(record.job.uuid)]
    finally:
        store.close()


def test_hundreds_of_short_processes_are_counted_in_full(run: Runner) -> None:
    code = (
        BURN
        + OWN_TRUTH
        + """
for _ in range(300):
    pid = os.fork()
    if pid == 0:
        burn(0.003)
        os._exit(0)
    os.waitpid(pid, 0)
print(used())
"""
    )
    ran = run("--", *PYTHON, code)
    truth = float(ran.stdout)
    # What the job does after it has looked is not in its truth: the end of an interpreter.
    assert truth * 0.97 <= ran.usage["cpu_total_seconds"] <= truth * 1.03 + 0.02
    assert truth > 0.9
    assert "cpu_total_usec" not in ran.record["accounting"]["lower_bounds"]


def test_a_daemon_that_burns_is_counted_in_full(run: Runner) -> None:
    code = (
        BURN
        + """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        burn(0.8)
        open('burnt', 'w').close()
        time.sleep(30)
    os._exit(0)
os.wait()
while not os.path.exists('burnt'):
    time.sleep(0.02)
"""
    )
    ran = run("--grace", "0.2", "--", *PYTHON, code)
    assert ran.code == 0
    assert 0.8 <= ran.usage["cpu_total_seconds"] < 1.3
    assert ran.record["leftovers"] == 1


def test_a_short_spike_of_memory_is_found(run: Runner) -> None:
    """200 MB for 0.3 s, long between two samples."""
    code = """
import time
time.sleep(0.2)
spike = bytearray(b'x') * (200 << 20)
time.sleep(0.3)
del spike
time.sleep(0.7)
"""
    ran = run("--interval", "10", "--", *PYTHON, code)
    assert 200 <= ran.usage["memory_peak_mb"] < 200 * 1.02 + 12  # and the interpreter itself


def test_children_nobody_waits_for_are_counted_where_a_group_counts(root_run: Runner) -> None:
    """A parent that ignores SIGCHLD: the kernel throws away what its children used."""
    code = (
        BURN
        + """
import signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in range(4):
    if os.fork() == 0:
        burn(0.15)
        os._exit(0)
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
"""
    )
    ran = root_run("--accounting", "cgroup", "--", *PYTHON, code)
    assert 0.6 <= ran.usage["cpu_total_seconds"] < 1.0
    assert "io_call_write_bytes" in ran.record["accounting"]["lower_bounds"]  # /proc/PID/io is gone with them


def test_children_nobody_waits_for_make_the_number_a_lower_bound_without_groups(tmp_path: Path) -> None:
    code = (
        BURN
        + """
import signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
if os.fork() == 0:
    burn(0.8)
    os._exit(0)
try:
    os.wait()
except ChildProcessError:
    pass
time.sleep(0.3)
"""
    )
    with runner("nobody", tmp_path) as run:
        ran = run("--interval", "0.05", "--", *PYTHON, code)
    assert 0.4 <= ran.usage["cpu_total_seconds"] < 1.2  # what was seen of it is kept
    assert "cpu_total_usec" in ran.record["accounting"]["lower_bounds"]


def test_a_job_of_a_few_milliseconds_has_exact_totals(run: Runner) -> None:
    code = BURN + OWN_TRUTH + "burn(0.02)\nprint(used())"
    ran = run("--interval", "10", "--", *PYTHON, code)
    truth = float(ran.stdout)
    # Its own clock began with the fork, a moment before it was in its group.
    assert truth - 0.001 <= ran.usage["cpu_total_seconds"] <= truth + 0.02
    assert ran.usage["memory_peak_mb"] > 1 or "memory_peak_bytes" in ran.record["accounting"]["lower_bounds"]
    assert ran.record["samples"] == 2  # the first and the last


def test_there_is_always_a_first_and_a_last_sample(run: Runner) -> None:
    ran = run("--interval", "0.1", "--", "sleep", "0.55")
    samples = samples_of(run)
    assert ran.record["samples"] == len(samples) >= 5
    assert samples[0].elapsed_us < samples[-1].elapsed_us / 2
    assert samples[-1].elapsed_us >= 550_000
    assert [sample.elapsed_us for sample in samples] == sorted(sample.elapsed_us for sample in samples)
    assert samples[-1].cpu_total_usec is not None
    assert abs(samples[-1].cpu_total_usec / 1e6 - ran.usage["cpu_total_seconds"]) < 0.011


def test_the_schedule_does_not_drift(root_run: Runner) -> None:
    root_run("--interval", "0.05", "--", "sleep", "1.5")
    ticks = [sample.elapsed_us for sample in samples_of(root_run)][1:-1]
    assert len(ticks) >= 10
    late = sorted((tick % 50_000) for tick in ticks)
    # Lateness does not add up: the typical tick is as late at the end as at the start.
    assert late[len(late) // 2] < 30_000


def test_bytes_through_calls_are_exact(run: Runner) -> None:
    ran = run("--", "dd", "if=/dev/zero", "of=/dev/null", "bs=65536", "count=512", "status=none")
    assert 0 <= ran.usage["io_call_read_bytes"] - 512 * 65536 < 65536  # and what the loader reads
    assert ran.usage["io_call_write_bytes"] == 512 * 65536
    assert ran.usage["io_call_writes"] == 512


def test_bytes_of_reaped_children_are_not_counted_twice(run: Runner) -> None:
    line = "dd if=/dev/zero of=/dev/null bs=65536 count=256 status=none"
    ran = run("--interval", "0.05", "--", "sh", "-c", f"{line}; {line}; sleep 0.2; {line}")
    assert ran.usage["io_call_write_bytes"] == 3 * 256 * 65536


def test_reading_a_large_cold_file_is_no_memory_of_the_job(run: Runner) -> None:
    large = run.folder / "large"
    with large.open("wb") as file:
        for _ in range(200):
            file.write(os.urandom(1) * MIB)
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    large.chmod(0o644)
    ran = run("--interval", "0.05", "--", "dd", f"if={large}", "of=/dev/null", "bs=1M", "status=none")
    assert ran.code == 0
    assert ran.usage["memory_peak_mb"] < 60
    assert ran.usage["io_call_read_bytes"] >= 200 * MIB


def test_without_monitoring_there_are_totals_and_no_samples(run: Runner) -> None:
    ran = run("--no-monitor", "--", *PYTHON, BURN + "burn(0.1)")
    assert ran.record["samples"] == 0
    assert samples_of(run) == []
    assert 0.1 <= ran.usage["cpu_total_seconds"] < 0.3


def test_every_number_names_its_source_or_why_it_is_unknown(run: Runner) -> None:
    ran = run("--", "true")
    accounting = ran.record["accounting"]
    named = {"memory_peak_mb": "memory_peak_bytes"}
    unknown = {named.get(name, name) for name, value in ran.usage.items() if value is None}
    assert unknown <= set(accounting["unknown"])
    assert all(accounting["unknown"].values())
    assert accounting["sources"]["cpu"]


def test_the_launchers_own_work_is_not_the_jobs(run: Runner) -> None:
    ran = run("--", "true")
    assert ran.usage["cpu_total_seconds"] < 0.02
    assert ran.usage["faults_minor"] < 500  # an interpreter has thousands
    assert (ran.usage["memory_peak_mb"] or 0) < 8
