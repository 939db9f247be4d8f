"""How long a run will still take."""

import pytest

from joblens.engine.progress.estimate import (
    FROM_HISTORY,
    FROM_SPEC,
    FROM_THIS_RUN,
    Capacity,
    Estimate,
    Estimator,
    chains,
)
from joblens.model.jobs.job import Requirements
from joblens.model.runs.plan import Plan, PlannedJob
from joblens.model.runs.run import JobState
from joblens.model.runs.workflow_spec import WhenBlockedFails


def sweep(count: int, **more: object) -> Plan:
    return Plan(name="w", jobs=tuple(PlannedJob(name=f"j{at}", command="x", **more) for at in range(count)))  # type: ignore[arg-type]


def test_nothing_is_promised_where_nothing_is_known() -> None:
    assert Estimator(sweep(3), {}, Capacity(1)).estimate(0.0) == Estimate(unknown=3)


def test_jobs_nobody_knows_make_it_a_least() -> None:
    jobs = (PlannedJob(name="a", command="x"), PlannedJob(name="b", command="x", spec_job=1))
    found = Estimator(Plan(name="w", jobs=jobs), {"a": 4.0}, Capacity(1)).estimate(0.0)
    assert found == Estimate(4.0, (FROM_HISTORY,), unknown=1)


def test_earlier_runs_say_how_long_jobs_take() -> None:
    found = Estimator(sweep(4), {f"j{at}": 10.0 for at in range(4)}, Capacity(2)).estimate(0.0)
    assert found == Estimate(20.0, (FROM_HISTORY,))


def test_jobs_of_the_same_entry_say_so_where_history_does_not() -> None:
    estimator = Estimator(sweep(4), {}, Capacity(1))
    estimator.changed(0, JobState.RUNNING, 0.0)
    estimator.changed(0, JobState.COMPLETED, 8.0)
    estimator.succeeded(0, 8.0)
    assert estimator.estimate(8.0) == Estimate(24.0, (FROM_THIS_RUN,))


def test_where_a_cluster_decides_what_runs_now_says_how_many_run_at_once() -> None:
    estimator = Estimator(sweep(10), {f"j{at}": 6.0 for at in range(10)}, Capacity(most_jobs=2000))
    for index in range(10):
        estimator.changed(index, JobState.PENDING, 0.0)
    for index in range(2):
        estimator.changed(index, JobState.RUNNING, 0.0)
    assert estimator.estimate(0.0).left_s == 30.0
    for index in range(2, 10):
        estimator.changed(index, JobState.RUNNING, 1.0)
    assert estimator.estimate(1.0).left_s == 6.0  # nothing waits


def test_jobs_of_whose_end_a_cluster_has_not_reported_yet_do_not_make_it_faster() -> None:
    estimator = Estimator(sweep(12), {}, Capacity(most_jobs=2000))
    for index in range(12):
        estimator.changed(index, JobState.PENDING, 0.0)
    for index in range(8):
        estimator.changed(index, JobState.RUNNING, float(index // 2))  # two at a time, a second each
    for index in range(4):
        estimator.changed(index, JobState.COMPLETED, 2.0)
        estimator.succeeded(index, 1.0)
    left_s = estimator.estimate(4.0).left_s  # 4 and 5, 6 and 7 have ended, which nobody knows yet
    assert left_s == pytest.approx(2.0)


def test_written_runtimes_are_the_last_resort() -> None:
    plan = sweep(2, requirements=Requirements(timeout_s=60.0))
    assert Estimator(plan, {}, Capacity(1)).estimate(0.0) == Estimate(120.0, (FROM_SPEC,))


def test_every_source_is_named() -> None:
    jobs = (
        PlannedJob(name="a", command="x", spec_job=0),
        PlannedJob(name="b", command="x", spec_job=1, requirements=Requirements(timeout_s=5.0)),
    )
    found = Estimator(Plan(name="w", jobs=jobs), {"a": 1.0}, Capacity(1)).estimate(0.0)
    assert found == Estimate(6.0, (FROM_HISTORY, FROM_SPEC))


def test_a_chain_takes_its_time_however_many_cpus_there_are() -> None:
    jobs = tuple(
        PlannedJob(name=f"j{at}", command="x", depends_on=(at - 1,) if at else ()) for at in range(3)
    )
    plan = Plan(name="w", jobs=jobs)
    estimator = Estimator(plan, {f"j{at}": 10.0 for at in range(3)}, Capacity(64))
    assert estimator.estimate(0.0).left_s == 30.0
    estimator.changed(0, JobState.RUNNING, 0.0)
    assert estimator.estimate(4.0).left_s == 26.0
    estimator.changed(0, JobState.COMPLETED, 10.0)
    assert estimator.estimate(10.0).left_s == 20.0


def test_memory_can_be_what_there_is_too_little_of() -> None:
    plan = sweep(4, requirements=Requirements(memory_bytes=100))
    estimator = Estimator(plan, {f"j{at}": 10.0 for at in range(4)}, Capacity(64, memory_bytes=100))
    assert estimator.estimate(0.0).left_s == 40.0


def test_a_job_that_takes_longer_than_before_is_about_to_end_not_overdue() -> None:
    estimator = Estimator(sweep(1), {"j0": 10.0}, Capacity(1))
    estimator.changed(0, JobState.RUNNING, 0.0)
    assert estimator.estimate(25.0).left_s == 0.0


def test_a_job_that_has_to_run_again_counts_again() -> None:
    estimator = Estimator(sweep(1), {"j0": 10.0}, Capacity(1))
    estimator.changed(0, JobState.FAILED, 1.0)
    assert estimator.estimate(1.0).left_s == 0.0
    estimator.changed(0, JobState.READY, 2.0)
    assert estimator.estimate(2.0).left_s == 10.0


def test_jobs_behind_a_failure_take_no_time_any_more() -> None:
    jobs = (
        PlannedJob(name="a", command="x"),
        PlannedJob(name="b", command="x", depends_on=(0,)),
        PlannedJob(name="c", command="x", depends_on=(1,)),
        PlannedJob(name="d", command="x", depends_on=(0,), when_blocked_fails=WhenBlockedFails.RUN),
    )
    estimator = Estimator(Plan(name="w", jobs=jobs), dict.fromkeys("abcd", 10.0), Capacity(1))
    estimator.changed(0, JobState.FAILED, 5.0)
    assert estimator.estimate(5.0).left_s == 10.0
    estimator.changed(1, JobState.CANCELED, 6.0)
    estimator.changed(3, JobState.COMPLETED, 6.0)
    assert estimator.estimate(6.0).left_s == 0.0


def test_a_job_that_can_never_run_makes_no_chain_longer() -> None:
    """It waits for one that failed and for one that still runs."""
    jobs = (
        PlannedJob(name="a", command="x"),
        PlannedJob(name="b", command="x"),
        PlannedJob(name="c", command="x", depends_on=(0, 1)),
        PlannedJob(name="d", command="x", depends_on=(2,)),
    )
    known = {"a": 3.0, "b": 3.0, "c": 30.0, "d": 30.0}
    estimator = Estimator(Plan(name="w", jobs=jobs), known, Capacity(2))
    estimator.changed(0, JobState.RUNNING, 0.0)
    estimator.changed(1, JobState.RUNNING, 0.0)
    assert estimator.estimate(0.0).left_s == 63.0
    estimator.changed(0, JobState.FAILED, 1.0)
    assert estimator.estimate(1.0).left_s == 2.0


def test_with_very_many_entries_the_clock_counts_down_in_between() -> None:
    jobs = tuple(PlannedJob(name=f"j{at}", command="x", spec_job=at) for at in range(50_000))
    plan = Plan(name="w", jobs=jobs)
    written = {job.name: 1.0 for job in jobs[:10]}
    estimator = Estimator(plan, written, Capacity(1))
    assert estimator.estimate(100.0).left_s == 10.0
    for index in range(10):
        estimator.changed(index, JobState.COMPLETED, 101.0)
    assert estimator.estimate(101.0).left_s == 9.0
    assert estimator.estimate(106.0).left_s is None


def test_chains_go_through_the_slower_branch() -> None:
    jobs = [
        PlannedJob(name="a", command="x"),
        PlannedJob(name="b", command="x", depends_on=(0,)),
        PlannedJob(name="c", command="x", depends_on=(0,)),
        PlannedJob(name="d", command="x", depends_on=(1, 2)),
    ]
    assert chains(jobs, [1.0, 5.0, 2.0, None]) == [6.0, 5.0, 2.0, 0.0]
