"""The last words about a run and what a dry run tells, pinned as in test_text.py."""

from msgspec.structs import replace

from joblens.analysis.runs.status import FailedJob, RunEnding
from joblens.engine.schedule.dry_run import DryRun, Rehearsal, RehearsedStart
from joblens.model.clusters.placement import ARRAY, Capacity, ClusterPreview, PlannedRequest
from joblens.model.jobs.job import Requirements
from joblens.model.runs.plan import Plan, PlannedJob
from joblens.model.runs.run import JobState, RunStatus
from joblens.plan.workflows.graph import stages_of
from joblens.views.runs.plan import render_dry_run
from joblens.views.runs.results import render_ending
from tests.golden.golden import same_as_golden

FAILED = RunEnding(
    label="3.1",
    name="pipeline",
    status=RunStatus.FAILED,
    wall_s=75.2,
    counts={JobState.BLOCKED: 1, JobState.COMPLETED: 1200, JobState.FAILED: 12},
    failures=(
        FailedJob("train_2", JobState.FAILED, "exit code 1", "/out/job_output/3_1/train_2", 17),
        FailedJob("late\x1b[31m", JobState.TERMINATED, "timed out"),
    ),
    more_failures=10,
)
PLAN = Plan(
    name="pipeline",
    jobs=(
        PlannedJob(name="prepare", command="python3 prepare.py"),
        PlannedJob(
            name="train",
            command="python3 train.py --data data.csv",
            depends_on=(0,),
            requirements=Requirements(cpus=4, memory_bytes=8 << 30, gpus=2, timeout_s=7200),
        ),
    ),
)


def test_the_end_of_a_run_that_failed() -> None:
    same_as_golden("run-ending-failed", render_ending(FAILED, width=100))


def test_jobs_that_never_began_for_one_reason_are_reported_together() -> None:
    why = "it could not be started: Ray is not installed"
    alike = tuple(FailedJob(name, JobState.FAILED, why) for name in ("a", "b"))
    logged = tuple(FailedJob(name, JobState.FAILED, "exit code 1", f"/out/{name}", 1) for name in ("c", "d"))
    lines = render_ending(replace(FAILED, failures=(*alike, *logged), more_failures=0), width=100)
    assert f"  a, b failed: {why}" in lines
    assert "  c failed: exit code 1" in lines
    assert "  d failed: exit code 1" in lines


def test_the_end_of_a_run_that_was_stopped() -> None:
    stopped = RunEnding(
        label="3.2",
        name="pipeline",
        status=RunStatus.STOPPED,
        wall_s=0.4,
        counts={JobState.READY: 3, JobState.COMPLETED: 1},
    )
    same_as_golden("run-ending-stopped", render_ending(stopped, width=100))


def dry_run_of(rehearsal: Rehearsal, cluster: ClusterPreview, reasons: dict[int, str]) -> DryRun:
    stages = tuple(stages_of(PLAN, [start.index for start in rehearsal.starts]))
    return DryRun(plan=PLAN, rehearsal=rehearsal, stages=stages, cluster=cluster, reasons=reasons)


HERE = ClusterPreview(engine="local", where="this machine")
KNOWN = Rehearsal(
    (RehearsedStart(0, 0.0, 12.5), RehearsedStart(1, 12.5, 3600.0, ("0", "3"))), makespan_s=3612.5
)


def test_a_dry_run_of_which_all_is_known() -> None:
    same_as_golden("dry-run", render_dry_run(dry_run_of(KNOWN, HERE, {}), width=110))


def test_a_dry_run_of_what_has_changed() -> None:
    rehearsal = Rehearsal((RehearsedStart(1, 0.0, None),), makespan_s=None)
    reasons = {1: "input 'data.csv' has changed"}
    same_as_golden("dry-run-changed", render_dry_run(dry_run_of(rehearsal, HERE, reasons), width=150))


def test_a_dry_run_on_slurm() -> None:
    request = PlannedRequest(
        stage=2,
        kind=ARRAY,
        name="train",
        jobs=(1,),
        nodes=2,
        cpus=4,
        memory_bytes=8 << 30,
        gpus=2,
        walltime_s=7320,
        partition="gpu",
        argv=("sbatch", "--parsable", "--nodes=2", "--comment=joblens run=RUN", "--partition=gpu\x1b[31m"),
    )
    capacity = Capacity(name="gpu", count=4, cpus=64, memory_bytes=256 << 30, gpus=4, time_limit_s=86400)
    cluster = ClusterPreview(
        engine="slurm", where="Slurm cluster test", capacity=(capacity,), requests=(request,)
    )
    planned = replace(dry_run_of(KNOWN, cluster, {}), not_started=())
    same_as_golden("dry-run-slurm", render_dry_run(planned, width=80))
