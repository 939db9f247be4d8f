"""Limits: held by the kernel where it can, by joblens where it cannot, and the record says which."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.run_jobs import MIB, PYTHON, Runner, runner

# Touches memory step by step, and says how far it came.
GROW = """
import sys, time
held = []
for step in range(int(sys.argv[1])):
    held.append(bytearray(b'x' * (8 << 20)))
    print(step, flush=True)
    time.sleep(float(sys.argv[2]))
"""
BURN = "import time\nend = time.monotonic() + {wall}\nwhile time.monotonic() < end: pass"
FORKS = """
import os, time
made = failed = 0
for _ in range(20):
    try:
        pid = os.fork()
    except OSError:
        failed += 1
        continue
    if pid == 0:
        time.sleep(1.5)
        os._exit(0)
    made += 1
print(made, failed, flush=True)
time.sleep(1)
"""


@pytest.fixture
def cgroup(tmp_path: Path) -> Iterator[Runner]:
    with runner("cgroup", tmp_path) as one:
        yield one


@pytest.fixture
def nobody(tmp_path: Path) -> Iterator[Runner]:
    with runner("nobody", tmp_path) as one:
        yield one


def _enforced_by(record: dict[str, object]) -> dict[str, str]:
    accounting = record["accounting"]
    assert isinstance(accounting, dict)
    by: dict[str, str] = accounting["enforced_by"]
    return by


# ---- memory ------------------------------------------------------------------------------------


@pytest.mark.parametrize("monitoring", [(), ("--no-monitor",)])
def test_the_kernels_out_of_memory_kill_is_recognised(cgroup: Runner, monitoring: tuple[str, ...]) -> None:
    ran = cgroup(*monitoring, "--memory", "64m", "--", *PYTHON, GROW, "40", "0")
    assert ran.code == 128 + signal.SIGKILL
    assert (ran.record["status"], ran.record["reason"]) == ("failed", "out-of-memory")
    assert ran.usage["oom_kills"] >= 1
    assert "out-of-memory" in ran.finding_codes
    assert _enforced_by(ran.record)["memory"].startswith("cgroup memory.")
    assert ran.record["requirements"]["memory_bytes"] == 64 * MIB


def test_a_kill_is_not_taken_for_lack_of_memory(cgroup: Runner) -> None:
    ran = cgroup("--memory", "256m", "--", "sh", "-c", "kill -KILL $$")
    assert ran.code == 137
    assert ran.record["reason"] == "signal"
    assert ran.usage["oom_kills"] == 0


def test_a_leak_that_ends_out_of_memory_within_a_second_is_reported_as_one(cgroup: Runner) -> None:
    ran = cgroup("--interval", "200ms", "--memory", "100m", "--", *PYTHON, GROW, "60", "0.08")
    (leak,) = [finding for finding in ran.record["findings"] if finding["code"] == "leak-suspected"]
    assert "until it ran out" in leak["text"]
    assert "another" not in leak["text"]


def test_a_job_within_its_memory_is_left_alone(cgroup: Runner) -> None:
    ran = cgroup("--memory", "256m", "--", *PYTHON, GROW, "4", "0")
    assert ran.code == 0
    assert 32 * MIB < ran.usage["memory_peak_mb"] * MIB < 64 * MIB


def test_a_child_that_was_killed_for_memory_is_reported_though_the_job_went_on(cgroup: Runner) -> None:
    ran = cgroup("--memory", "64m", "--", "sh", "-c", '"$@"; exit 0', "sh", *PYTHON, GROW, "40", "0")
    assert ran.code == 0
    assert ran.record["status"] == "success"
    assert ran.usage["oom_kills"] >= 1
    assert "child-out-of-memory" in ran.finding_codes


def test_without_groups_joblens_ends_a_job_over_its_memory(nobody: Runner) -> None:
    ran = nobody("--memory", "100m", "--", *PYTHON, GROW, "60", "0.05")
    assert ran.code == 128 + signal.SIGKILL
    assert (ran.record["status"], ran.record["reason"]) == ("failed", "out-of-memory")
    assert "out-of-memory" in ran.finding_codes
    assert _enforced_by(ran.record)["memory"] == "watched by joblens"
    assert ran.record["accounting"]["mode"] == "process-tree"
    steps = len(ran.stdout.split())
    assert 10 <= steps < 40  # not before its limit, and soon after


def test_without_groups_a_sudden_rush_is_ended_like_any_other_lack_of_memory(nobody: Runner) -> None:
    rush = "import time; held = bytearray(1 << 30); time.sleep(60)"
    ran = nobody("--memory", "50m", "--", *PYTHON, rush)
    assert ran.code == 128 + signal.SIGKILL
    assert (ran.record["status"], ran.record["reason"]) == ("failed", "out-of-memory")


def test_without_groups_address_space_that_is_never_touched_is_no_memory(nobody: Runner) -> None:
    reserve = "import mmap, time; held = mmap.mmap(-1, 1 << 30, mmap.MAP_PRIVATE); time.sleep(0.3)"
    ran = nobody("--memory", "100m", "--", *PYTHON, reserve)
    assert (ran.code, ran.record["status"]) == (0, "success")


def test_without_groups_memory_in_children_counts_together(nobody: Runner) -> None:
    forks = (
        "import os, time\n"
        "for _ in range(4):\n"
        "    if os.fork() == 0:\n"
        "        held = bytearray(b'x') * (40 << 20); time.sleep(60)\n"
        "time.sleep(60)"
    )
    ran = nobody("--memory", "100m", "--", *PYTHON, forks)
    assert (ran.record["status"], ran.record["reason"]) == ("failed", "out-of-memory")


# ---- processes ---------------------------------------------------------------------------------


def test_the_kernel_refuses_one_process_too_many(cgroup: Runner) -> None:
    ran = cgroup("--pids", "8", "--", *PYTHON, FORKS)
    made, failed = map(int, ran.stdout.split())
    assert made == 7  # and itself
    assert failed == 13
    assert _enforced_by(ran.record)["pids"] == "cgroup pids.max"
    assert ran.usage["pids_limit_events"] >= 1


def test_without_groups_joblens_ends_a_job_with_too_many_processes(nobody: Runner) -> None:
    ran = nobody("--pids", "8", "--", *PYTHON, FORKS)
    assert ran.code == 128 + signal.SIGKILL
    assert (ran.record["status"], ran.record["reason"]) == ("failed", "limit")
    assert _enforced_by(ran.record)["pids"] == "watched by joblens"


# ---- CPUs --------------------------------------------------------------------------------------


def test_half_a_cpu_is_throttled(cgroup: Runner) -> None:
    ran = cgroup("--cpus", "0.5", "--", *PYTHON, BURN.format(wall=1.5))
    assert ran.code == 0
    assert _enforced_by(ran.record)["cpus"].startswith("cgroup cpu.")
    share = ran.usage["cpu_total_seconds"] / ran.record["duration_seconds"]
    assert share < 0.65
    assert ran.usage["cpu_throttled_usec"] > 0 or share < 0.45  # other load left it less than its half


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU is all there is")
def test_without_groups_whole_cpus_are_given_by_affinity(nobody: Runner) -> None:
    ran = nobody("--cpus", "1", "--", *PYTHON, "import os; print(len(os.sched_getaffinity(0)))")
    assert ran.stdout == b"1\n"
    assert _enforced_by(ran.record) == {"cpus": "CPU affinity (1 whole CPU)"}


# ---- none, and forced --------------------------------------------------------------------------


def test_requirements_that_are_not_enforced_are_only_recorded(cgroup: Runner) -> None:
    asked = ("--cpus", "0.1", "--memory", "16m", "--pids", "1", "--timeout", "0.1", "--gpus", "2")
    ran = cgroup("--no-enforce", *asked, "--", "sh", "-c", "sleep 0.4; true | true")
    assert ran.code == 0
    assert _enforced_by(ran.record) == {}
    assert ran.record["requirements"] == {
        "cpus": 0.1,
        "memory_bytes": 16 * MIB,
        "gpus": 2,
        "nodes": None,
        "pids": 1,
        "timeout_s": 0.1,
    }


def test_a_time_out_says_who_watches_it(cgroup: Runner) -> None:
    ran = cgroup("--timeout", "20", "--", "true")
    assert _enforced_by(ran.record) == {"timeout": "joblens timer"}


def test_groups_can_be_asked_for(cgroup: Runner) -> None:
    assert cgroup("--", "true").record["accounting"]["mode"].startswith("cgroup-")


def test_the_process_tree_can_be_asked_for(tmp_path: Path) -> None:
    with runner("process_tree", tmp_path) as run:
        ran = run("--", "true")
    assert ran.record["accounting"]["mode"] == "process-tree"
    assert run.last_record().attempt.groups == {}


def test_groups_that_cannot_be_had_are_an_error(nobody: Runner) -> None:
    ran = nobody("--accounting", "cgroup", "--", "true")
    assert ran.code == 125
    assert b"joblens: error:" in ran.stderr
    assert b"Traceback" not in ran.stderr
    assert ran.record["status"] == "error"


def test_without_groups_the_choice_is_the_process_tree(nobody: Runner) -> None:
    ran = nobody("--", "true")
    assert ran.code == 0
    assert ran.record["accounting"]["mode"] == "process-tree"
    assert ran.usage["oom_kills"] is None  # unknown, not 0
    assert "oom_kills" in ran.record["accounting"]["unknown"]


def test_more_gpus_than_the_machine_has_are_reported(cgroup: Runner) -> None:
    cgroup("--gpus", "99", "--", "true")
    outcome = cgroup.last_record().outcome
    assert outcome is not None
    assert any("99 GPUs (it has " in finding.text for finding in outcome.findings)
