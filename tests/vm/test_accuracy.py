"""Totals of `joblens run` in every launch situation, against truths that the jobs know themselves."""

from typing import Any

from tests.vm.machine import IS_QUICK
from tests.vm.situations import Session
from tests.vm.summary import Summary

FORKS = 200 if IS_QUICK else 2000
WITHIN_PERCENT = 5 if IS_QUICK else 1  # the end of the last process weighs more in a short job


def measured(situation: Session) -> Any:
    return situation.batch("accuracy", str(FORKS))


def test_the_expected_accounting_is_used(situation: Session, summary: Summary) -> None:
    job = measured(situation)["forks"]
    summary.note(situation.name, "run mode", job["mode"])
    assert job["code"] == 0, job
    if situation.situation.is_cgroup_expected:
        assert job["mode"] == "cgroup-v2", job


def test_cpu_time_of_many_forks_is_exact(situation: Session, summary: Summary) -> None:
    job = measured(situation)["forks"]
    truth = float(job["stdout"])
    off = 100 * (job["cpu_s"] - truth) / truth
    summary.note(situation.name, f"{FORKS:,} forks", flagged(f"{off:+.1f} %", job, "cpu_total_usec"))
    assert abs(off) <= WITHIN_PERCENT or is_lower_bound(job, "cpu_total_usec", is_less=off < 0), (
        f"off by {off:+.2f} %: {job}"
    )


def test_a_memory_spike_is_within_two_percent(situation: Session, summary: Summary) -> None:
    job = measured(situation)["spike"]
    truth = float(job["stdout"])
    assert truth > 300
    off = 100 * (job["peak_mb"] - truth) / truth
    summary.note(situation.name, "300 MB spike", flagged(f"{off:+.1f} %", job, "memory_peak_bytes"))
    assert abs(off) <= 2 or is_lower_bound(job, "memory_peak_bytes", is_less=off < 0), (
        f"off by {off:+.2f} %: {job}"
    )


def test_a_daemon_is_counted_in_full_or_flagged(situation: Session, summary: Summary) -> None:
    job = measured(situation)["daemon"]
    truth = float(job["stdout"])
    off = 100 * (job["cpu_s"] - truth) / truth
    summary.note(situation.name, "daemon", flagged(f"{off:+.1f} %", job, "cpu_total_usec"))
    # The truth lacks the start of the shell and the end of each process.
    assert -1 <= off <= 10 or is_lower_bound(job, "cpu_total_usec", is_less=off < 0), (
        f"off by {off:+.2f} %: {job}"
    )


def is_lower_bound(job: dict[str, Any], number: str, *, is_less: bool) -> bool:
    return is_less and number in job["lower_bounds"]


def flagged(text: str, job: dict[str, Any], number: str) -> str:
    return f"{text} flagged" if number in job["lower_bounds"] else text
