"""How far a run has come."""

from joblens.engine.progress.progress import JobFailure, ProgressTracker, StageProgress, stage_name
from joblens.engine.schedule.capacity import RunCapacity
from joblens.model.jobs.job import Requirements
from joblens.model.runs.plan import Plan, PlannedJob
from joblens.model.runs.run import JobState

START_US = 1_760_524_200_000_000
ASKED = Requirements(cpus=2, memory_bytes=1024, gpus=1)
PLAN = Plan(
    name="ml",
    jobs=(
        PlannedJob(name="prepare", command="x"),
        PlannedJob(name="train_1", command="x", depends_on=(0,), requirements=ASKED, spec_job=1),
        PlannedJob(name="train_2", command="x", depends_on=(0,), requirements=ASKED, spec_job=1),
    ),
)
STAGES = [[0], [1, 2]]


def tracker() -> ProgressTracker:
    return ProgressTracker(
        PLAN,
        STAGES,
        RunCapacity(cpus=4, memory_bytes=4096, gpus=("0", "1")),
        {},
        run="3.2",
        began_at_us=START_US,
    )


def test_every_stage_counts_its_own_jobs() -> None:
    run = tracker()
    run.state_changed(0, JobState.COMPLETED, START_US)
    run.attempt_began(1, 1, "u1", START_US)
    run.state_changed(2, JobState.FAILED, START_US)
    assert run.progress(START_US).stages == (
        StageProgress("prepare", 1, done=1),
        StageProgress("train_…", 2, failed=1, running=1),
    )


def test_a_job_that_was_cancelled_while_it_ran_did_not_fail() -> None:
    run = tracker()
    for index in (1, 2):
        run.attempt_began(index, 1, f"u{index}", START_US)
    run.attempt_cancelled(1)
    run.state_changed(1, JobState.TERMINATED, START_US)
    run.state_changed(2, JobState.TERMINATED, START_US)  # it timed out
    assert run.progress(START_US).stages[1] == StageProgress("train_…", 2, failed=1, cancelled=1)


def test_jobs_left_out_of_the_run_are_not_counted() -> None:
    run = tracker()
    run.state_changed(2, JobState.DISABLED, START_US)
    assert run.progress(START_US).total == 2


def test_what_running_jobs_asked_for_is_reserved() -> None:
    run = tracker()
    run.attempt_began(0, 1, "u0", START_US)
    run.attempt_began(1, 1, "u1", START_US + 5)
    progress = run.progress(START_US + 2_000_000, {"u1": (150.0, 512)})
    assert (progress.cpus, progress.memory_bytes, progress.gpus) == ((3, 4), (1024, 4096), (1, 2))
    assert [(job.name, job.cpu_percent) for job in progress.running] == [
        ("prepare", None),
        ("train_1", 150.0),
    ]


def test_a_failure_is_forgotten_when_the_job_succeeds_in_the_end() -> None:
    run = tracker()
    run.attempt_failed(JobFailure(index=1, name="train_1", attempt=1, reason="exit code 1"))
    run.state_changed(1, JobState.READY, START_US)
    assert len(run.progress(START_US).failures) == 1
    run.state_changed(1, JobState.COMPLETED, START_US)
    assert run.progress(START_US).failures == ()


def test_acknowledged_jobs_are_those_that_will_not_change() -> None:
    run = tracker()
    for index, state in enumerate((JobState.COMPLETED, JobState.CANCELED, JobState.RUNNING)):
        run.state_changed(index, state, START_US)
    assert run.finished() == (2, 3)


def test_a_stage_is_named_by_what_its_jobs_share() -> None:
    names = ["align_a", "align_b", "count_a", "count_b", "x", "y", "z"]
    jobs = tuple(PlannedJob(name=name, command="x", spec_job=ord(name[0])) for name in names)
    plan = Plan(name="w", jobs=jobs)
    assert stage_name(plan, [0, 1]) == "align_…"
    assert stage_name(plan, [0, 1, 2, 3]) == "align_…, count_…"
    assert stage_name(plan, [0, 1, 4, 5, 6]) == "align_…, x, y, …"
    assert stage_name(plan, [4]) == "x"


def test_the_time_stands_still_once_the_run_has_ended() -> None:
    run = tracker()
    assert run.elapsed_s(START_US + 9_000_000) == 9.0
    run.ended_at_us = START_US + 2_000_000
    assert run.progress(START_US + 9_000_000).elapsed_s == 2.0
