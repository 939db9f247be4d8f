"""Totals of `joblens run` in every launch situation, against truths that the jobs know themselves."""

from typing import Any

from tests.vm.machine import IS_QUICK
from tests.vm.situations import Session
from tests.vm.summary import Summary

FORKS = 200 if IS_QUICK else 2000
WITHIN_PERCENT = 5 if IS_QUICK else 1  # the end of the last process weighs more in a short job

CPU = "cpu_total_usec"
MEMORY = "memory_peak_bytes"


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
    off = deviation(situation, summary, f"{FORKS:,} forks", job, CPU)
    if not is_flagged(job, CPU):
        summary.worst(f"CPU of {FORKS:,} forks, every situation", off, goal_percent=1)
    assert abs(off) <= WITHIN_PERCENT or (off < 0 and is_flagged(job, CPU)), f"off by {off:+.2f} %: {job}"


def test_a_memory_spike_is_within_two_percent(situation: Session, summary: Summary) -> None:
    job = measured(situation)["spike"]
    assert float(job["stdout"]) > 300
    off = deviation(situation, summary, "300 MB spike", job, MEMORY)
    if not is_flagged(job, MEMORY):
        summary.worst("memory spike, every situation", off, goal_percent=2)
    assert abs(off) <= 2 or (off < 0 and is_flagged(job, MEMORY)), f"off by {off:+.2f} %: {job}"


def test_a_daemon_is_counted_in_full_or_flagged(situation: Session, summary: Summary) -> None:
    job = measured(situation)["daemon"]
    off = deviation(situation, summary, "daemon", job, CPU)
    is_counted = -1 <= off <= 2  # the end of a process is not in the truth that it prints
    summary.exact(
        "daemon counted in full or flagged, every situation", int(is_counted or is_flagged(job, CPU)), 1
    )
    assert is_counted or (off < 0 and is_flagged(job, CPU)), f"off by {off:+.2f} %: {job}"


def deviation(situation: Session, summary: Summary, check: str, job: dict[str, Any], number: str) -> float:
    """Percent between the record and the truth that the job printed, noted for the summary. Of CPU time it
    prints the least and the most: what the process used before it became the job is known to milliseconds."""
    *_, least, most = 2 * [float(word) for word in job["stdout"].split()]
    value = float(job["cpu_s"] if number == CPU else job["peak_mb"])
    off = 100 * (value - min(max(value, least), most)) / most
    summary.note(situation.name, check, f"{off:+.1f} %{' flagged' if is_flagged(job, number) else ''}")
    return off


def is_flagged(job: dict[str, Any], number: str) -> bool:
    return number in job["lower_bounds"]
