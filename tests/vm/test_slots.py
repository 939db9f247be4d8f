"""Slots, which `map` and workflows run their jobs in, in every launch situation."""

from tests.vm.situations import ALICE_SSH, Session
from tests.vm.summary import Summary

RATE_GOAL = 0.5


def test_mapped_commands_succeed_with_the_accounting_of_the_situation(
    situation: Session, summary: Summary
) -> None:
    found = situation.batch("slots", "30", "1")
    summary.note(situation.name, "slots", ", ".join(found["modes"]))
    assert found["failures"] == []
    assert sum(found["modes"].values()) == found["count"]
    if situation.situation.is_cgroup_expected:
        assert set(found["modes"]) == {"cgroup-v2"}, found


def test_jobs_of_a_workflow_are_measured_and_limited(situation: Session, summary: Summary) -> None:
    found = situation.batch("workflow")
    jobs = found["jobs"]
    assert set(jobs) >= {"plain", "limited", "hungry"}, found
    summary.note(situation.name, "workflow", ", ".join(sorted({job["mode"] for job in jobs.values()})))
    assert jobs["plain"]["status"] == "success", jobs
    assert jobs["limited"]["status"] == "success", jobs
    assert jobs["hungry"]["reason"] == "out-of-memory", jobs
    assert found["code"] != 0, found
    assert jobs["plain"]["cpu_s"] >= 1, jobs
    if situation.situation.is_cgroup_expected:
        assert {job["mode"] for job in jobs.values()} == {"cgroup-v2"}, jobs
        assert jobs["limited"]["peak_mb"] >= 50, jobs


def test_the_rate_of_map_is_compared_with_a_bare_loop(alice: Session, summary: Summary) -> None:
    found = alice.batch("slots", "300", "2")
    assert found["failures"] == []
    ratio = found["ratio"]
    summary.number(
        f"map of 300 'true' against a bare loop ({ALICE_SSH.name}, {', '.join(found['modes'])})",
        f"{ratio:.2f}",
        goal=f">= {RATE_GOAL}",
        is_met=ratio >= RATE_GOAL,
    )
