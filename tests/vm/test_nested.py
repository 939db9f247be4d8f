"""Jobs inside jobs: the outer record contains the inner job, and the outer limits hold for it."""

from tests.vm.situations import Session
from tests.vm.summary import Summary


def test_the_outer_job_contains_the_inner_one(situation: Session, summary: Summary) -> None:
    found = situation.batch("nested")["whole"]
    outer, inner = found["outer"], found["inner"]
    shown = f"{outer['cpu_s']:.1f} >= {inner['cpu_s']:.1f} s"
    summary.note(situation.name, "nested CPU", shown if outer["cpu_s"] >= inner["cpu_s"] else f"not {shown}")
    assert outer["code"] == 0, outer
    assert inner["cpu_s"] >= 2, inner
    assert inner["peak_mb"] >= 196 or "memory_peak_bytes" in inner["lower_bounds"], inner
    assert outer["cpu_s"] >= inner["cpu_s"] or "cpu_total_usec" in outer["lower_bounds"], found
    assert outer["peak_mb"] >= inner["peak_mb"] or "memory_peak_bytes" in outer["lower_bounds"], found
    if situation.situation.is_cgroup_expected:
        assert (outer["mode"], inner["mode"]) == ("cgroup-v2", "cgroup-v2"), found
        assert "cpu_total_usec" not in outer["lower_bounds"], outer


def test_the_outer_memory_limit_holds_for_the_inner_job(situation: Session) -> None:
    outer = situation.batch("nested")["limited"]["outer"]
    assert outer["code"] != 0, outer
    assert outer["status"] == "failed", outer
    if outer["mode"] == "cgroup-v2":
        assert outer["peak_mb"] <= 101, outer


def test_slots_work_inside_a_job_with_limits(situation: Session) -> None:
    outer = situation.batch("nested")["mapped"]
    assert outer["code"] == 0, outer
    assert outer["stdout"].strip() == str([True] * 10), outer
