"""Two runs compared."""

from typing import Any

import pytest

from joblens.analysis.comparing.run_diff import Change, JobSide, RunSide, compare_runs
from joblens.model.jobs.job import Requirements
from joblens.model.values.units import GIB, MIB
from joblens.views.runs.diff import render_run_diff
from joblens.views.text.style import PLAIN


def job(**changes: Any) -> JobSide:
    usual: dict[str, Any] = {
        "state": "completed",
        "command": "x",
        "attempts": 1,
        "exit_code": 0,
        "duration_s": 100.0,
        "cpu_s": 90.0,
        "memory_bytes": GIB,
    }
    return JobSide(**{**usual, **changes})


def run(label: str, jobs: dict[str, JobSide], **more: Any) -> RunSide:
    return RunSide(label=label, jobs=jobs, **{"wall_s": 120.0, **more})


def test_jobs_are_matched_by_name() -> None:
    found = compare_runs(run("3.1", {"a": job(), "b": job()}), run("3.2", {"b": job(), "c": job()}))
    assert (found.added, found.removed) == (("c",), ("a",))
    assert [one.name for one in found.jobs] == ["b"]


def test_what_stayed_the_same_is_not_significant() -> None:
    found = compare_runs(
        run("1", {"a": job()}), run("2", {"a": job(duration_s=103.0, memory_bytes=GIB + MIB)})
    )
    assert not found.jobs[0].is_significant


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        (job(state="failed", exit_code=1), job(state="failed", exit_code=137), "failed, exit 1 → 137"),
        (job(), job(attempts=4), "completed, 1 → 4 attempts"),
    ],
)
def test_another_exit_code_or_number_of_attempts_is_reported(
    before: JobSide, after: JobSide, shown: str
) -> None:
    found = compare_runs(run("1", {"a": before}), run("2", {"a": after}))
    assert found.jobs[0].is_significant
    assert shown in "\n".join(render_run_diff(found, width=120, paint=PLAIN, shows_all=False))


def test_a_change_of_state_comes_before_every_number() -> None:
    before = {"slow": job(), "broken": job(duration_s=1.0)}
    after = {"slow": job(duration_s=500.0), "broken": job(duration_s=1.0, state="failed", exit_code=1)}
    found = compare_runs(run("1", before), run("2", after))
    assert [one.name for one in found.jobs] == ["broken", "slow"]
    assert found.jobs[0].state == ("completed", "failed")


def test_the_largest_change_comes_first() -> None:
    before = {"a": job(duration_s=1.0), "b": job(duration_s=100.0), "c": job(duration_s=10.0)}
    after = {"a": job(duration_s=2.0), "b": job(duration_s=160.0), "c": job(duration_s=10.1)}
    found = compare_runs(run("1", before), run("2", after))
    assert [one.name for one in found.jobs] == ["b", "a", "c"]
    assert [one.is_significant for one in found.jobs] == [True, True, False]


def test_what_was_asked_differently_is_named() -> None:
    asked = Requirements(memory_bytes=GIB, timeout_s=60)
    found = compare_runs(
        run("1", {"a": job(requirements=asked)}),
        run("2", {"a": job(command="y", requirements=Requirements())}),
    )
    assert found.jobs[0].changed == ("command", "memory", "runtime")
    assert found.jobs[0].is_significant


def test_totals_are_of_whole_runs() -> None:
    before = run("1", {"a": job(), "b": job(state="failed")}, wall_s=200.0)
    found = compare_runs(before, run("2", {"a": job(duration_s=50.0)}, wall_s=100.0))
    assert found.totals["wall_s"].percent == -50
    assert found.totals["duration_s"] == Change(200.0, 50.0)
    assert found.totals["completed"] == Change(1, 1)


def test_options_and_spec_are_compared() -> None:
    before = run("1", {}, spec_text="name: a\nx: 1\n", options={"cpus": 2, "cwd": "/w"})
    found = compare_runs(before, run("2", {}, spec_text="name: a\nx: 2\n", options={"cpus": 4, "cwd": "/w"}))
    assert found.options == {"cpus": (2, 4)}
    assert [line for line in found.spec_lines if line[:2] in ("-x", "+x")] == ["-x: 1", "+x: 2"]


def test_a_number_nobody_knows_is_no_change() -> None:
    found = compare_runs(
        run("1", {"a": job(duration_s=None, cpu_s=None, memory_bytes=None)}), run("2", {"a": job()})
    )
    assert found.jobs[0].duration_s.percent is None
    assert not found.jobs[0].is_significant


def test_runs_and_jobs_have_the_same_rule_for_a_change() -> None:
    """10 % of what it was, not of the larger one; less than 0.1 s or 8 MiB is too small to tell."""
    found = compare_runs(
        run("1", {"a": job(duration_s=100.0), "b": job(duration_s=0.05)}, wall_s=0.05),
        run("2", {"a": job(duration_s=110.5), "b": job(duration_s=0.09)}, wall_s=0.09),
    )
    assert {one.name: one.is_significant for one in found.jobs} == {"a": True, "b": False}
    lines = render_run_diff(found, width=None, paint=PLAIN, shows_all=False)
    (wall,) = [line for line in lines if line.startswith("wall time")]
    assert wall.split()[-1] == "≈"
    assert "≈ less than 0.1s or 8 MiB apart" in "\n".join(lines)
