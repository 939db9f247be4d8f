"""Timelines for pages: bars or lanes, the critical path in parts, curves on one axis."""

import pytest

from joblens.analysis.charts.gantt import MachineUse, PlotJob, StepCurve, gantt_of
from joblens.analysis.charts.timeline import MOST_BARS, Timeline, on_one_axis, timeline_of
from joblens.model.jobs.job import Owner, Status
from joblens.model.runs.run import JobResult, JobState, RunEvent, RunStarted

SECOND = 1_000_000
T0 = 1_760_524_200 * SECOND
STARTED = [RunEvent("e", "run", T0, RunStarted(Owner("host", 1, 2, "boot"), 4.0, 0))]


def attempt(index: int, begin_s: float, seconds: float, status: Status = Status.SUCCESS) -> JobResult:
    return JobResult(
        index=index,
        attempt=1,
        number=index + 1,
        job_uuid=str(index),
        status=status,
        began_at_us=T0 + round(begin_s * SECOND),
        duration_s=seconds,
    )


def timeline(
    jobs: list[PlotJob], results: list[JobResult], groups: list[int], opened: int | None = None
) -> Timeline:
    gantt = gantt_of(jobs, results, STARTED, T0)
    assert gantt is not None
    names = [f"group {number}" for number in range(max(groups) + 1)]
    return timeline_of(gantt, MachineUse(), groups, names, opened)


def sweep(count: int, failed: int = -1) -> tuple[list[PlotJob], list[JobResult]]:
    """One after the other, a second each; the last waits for all."""
    jobs = [PlotJob(f"job {index}") for index in range(count)]
    results = [
        attempt(index, index, 1, Status.FAILED if index == failed else Status.SUCCESS)
        for index in range(count)
    ]
    return jobs, results


def test_a_small_run_has_a_bar_per_attempt_and_marks_the_critical_path() -> None:
    jobs = [PlotJob("a"), PlotJob("b"), PlotJob("c", (0, 1))]
    found = timeline(jobs, [attempt(0, 0, 2), attempt(1, 0, 5), attempt(2, 6, 1)], [0, 0, 1])
    assert found.lanes == ()
    assert [(bar.name, bar.is_critical) for bar in found.bars] == [("a", False), ("b", True), ("c", True)]
    assert [(part.name, part.ran_s, part.waited_s) for part in found.critical] == [("b", 5, 0), ("c", 1, 1)]
    assert found.critical_ran_s + found.critical_waited_s == (found.end_us - found.begin_us) / SECOND


def test_a_large_run_has_a_lane_per_group_with_failures() -> None:
    jobs, results = sweep(MOST_BARS + 1, failed=3)
    found = timeline(jobs, results, [0] * len(jobs))
    assert found.bars == ()
    (lane,) = found.lanes
    assert (lane.attempts, lane.failed, lane.failed_at_us) == (MOST_BARS + 1, 1, (T0 + 4 * SECOND,))
    assert (lane.at_us[0], lane.at_us[-1]) == (T0, T0 + (MOST_BARS + 1) * SECOND)
    assert max(lane.running) == 1


def test_an_opened_group_shows_failed_attempts_before_the_others() -> None:
    jobs = [PlotJob(f"job {index}") for index in range(MOST_BARS + 200)]
    # All at once: one of them is critical, and the failed one is among the shortest.
    results = [attempt(index, 0, 10 + index % 7) for index in range(len(jobs))]
    results[400] = attempt(400, 0, 0.1, Status.FAILED)
    found = timeline(jobs, results, [0] * len(jobs), opened=0)
    assert len(found.bars) == MOST_BARS
    assert [bar.state for bar in found.bars if bar.index == 400] == [int(JobState.FAILED)]


def test_a_long_critical_path_joins_jobs_of_a_group() -> None:
    jobs = [PlotJob(f"job {index}", (index - 1,) if index else ()) for index in range(100)]
    results = [attempt(index, index, 1) for index in range(100)]
    found = timeline(jobs, results, [0] * 60 + [1] * 40)
    assert [(part.name, part.jobs, part.ran_s) for part in found.critical] == [
        ("group 0", 60, 60),
        ("group 1", 40, 40),
    ]


def test_curves_share_an_axis_and_keep_their_steps() -> None:
    found = on_one_axis({"a": StepCurve([0, 10], [1.0, 3.0]), "b": StepCurve([5], [2.0])}, 0, 20)
    assert found.at_us == (0, 4, 5, 9, 10, 19, 20)
    assert found.values == {"a": (1, 1, 1, 1, 3, 3, 3), "b": (None, None, 2, 2, 2, 2, 2)}


def test_a_curve_that_is_not_known_is_absent() -> None:
    assert on_one_axis({"a": StepCurve()}, 0, 10).values == {}


@pytest.mark.parametrize("count", [1, MOST_BARS, MOST_BARS + 1])
def test_every_attempt_counts_whether_it_has_a_bar_or_not(count: int) -> None:
    jobs, results = sweep(count)
    found = timeline(jobs, results, [0] * count)
    assert (found.attempts, found.ran_s) == (count, count)
    assert bool(found.lanes) == (count > MOST_BARS)
