"""Limits of jobs in every launch situation: enforced by the kernel in a group, else watched by joblens."""

from typing import Any

from tests.vm.situations import Session
from tests.vm.summary import Summary


def how(job: dict[str, Any], limit: str) -> str:
    """The mechanism of a limit in a few characters."""
    mechanism = job["enforced_by"].get(limit, "not enforced")
    return str(mechanism).replace("cgroup v2 ", "").split(" by ")[0]


OUT_OF_MEMORY = 137  # exit code of a job that the kernel or joblens killed
TIMED_OUT = 124


def test_a_job_over_its_memory_is_killed_and_says_so(situation: Session, summary: Summary) -> None:
    job = situation.batch("limits")["memory"]
    summary.note(situation.name, "--memory 100m", how(job, "memory"))
    assert (job["status"], job["reason"], job["code"]) == ("failed", "out-of-memory", OUT_OF_MEMORY), job
    assert "out-of-memory" in job["findings"], job
    assert "survived" not in job["stdout"]
    if job["mode"] == "cgroup-v2":
        assert job["oom_kills"] >= 1, job
        assert job["peak_mb"] <= 101, job


def test_a_cpu_limit_throttles_to_its_share(situation: Session, summary: Summary) -> None:
    job = situation.batch("limits")["cpus"]
    mechanism = job["enforced_by"].get("cpus", "")
    share = job["cpu_s"] / job["duration_s"]
    summary.note(situation.name, "--cpus 0.3", f"{share:.2f} {how(job, 'cpus')}")
    assert job["code"] == 0, job
    if job["mode"] == "cgroup-v2":
        assert "cpu.max" in mechanism, job
        assert share <= 0.33, job
        assert job["throttled_s"] > 0, job
    else:
        assert "limit-not-enforced" in job["findings"] or "affinity" in mechanism, job


def test_a_process_limit_holds(situation: Session, summary: Summary) -> None:
    job = situation.batch("limits")["pids"]
    children = int(job["stdout"] or -1)
    summary.note(situation.name, "--pids 10", f"{children} {how(job, 'pids')}")
    if job["mode"] == "cgroup-v2":
        assert children < 10, job
        assert job["pids_limit_events"] >= 1, job
    else:
        assert (job["status"], job["reason"]) == ("failed", "limit"), job
        assert "pids-limit" in job["findings"], job


def test_a_job_ends_at_its_timeout(situation: Session) -> None:
    job = situation.batch("limits")["timeout"]
    assert (job["status"], job["reason"], job["code"]) == ("timeout", "timeout", TIMED_OUT), job
    assert 2 <= job["duration_s"] < 20, job
    assert "timed-out" in job["findings"], job


def test_network_bytes_are_counted_or_a_reason_is_given(situation: Session, summary: Summary) -> None:
    job = situation.batch("limits")["network"]
    received = job["network_rx_bytes"]
    summary.note(
        situation.name, "1 MB received", "reason given" if received is None else f"{received / 1e6:.2f} MB"
    )
    assert job["stdout"].strip() == "1000000", job
    if received is None:
        assert job["unknown"]["network_rx_bytes"], job
    else:
        assert 1_000_000 <= received < 1_300_000, job
