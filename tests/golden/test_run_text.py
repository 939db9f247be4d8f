"""What people read of runs, pinned: each screen is compared with the file of its name in this folder."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from joblens.analysis.comparing.run_diff import JobSide, RunDiff, RunSide, compare_runs
from joblens.analysis.sizing.observations import Observation
from joblens.analysis.sizing.rightsizing import Group, advise
from joblens.engine.progress.estimate import Estimate
from joblens.engine.progress.progress import JobFailure, RunningJob, RunProgress, StageProgress
from joblens.model.jobs.job import Requirements, Status
from joblens.model.runs.run import RunStatus
from joblens.model.values.units import GIB, MIB
from joblens.views.runs.diff import render_run_diff
from joblens.views.runs.live import end_line, failure_line, render_run_live, summary_line
from joblens.views.runs.rightsize import render_group
from joblens.views.text.style import PLAIN, Palette, visible_width
from tests.golden.golden import same_as_golden

FAILURES = (
    JobFailure(
        index=4, name="train_3", attempt=1, reason="exit code 1", number=17, last_line="ValueError: bad rate"
    ),
    JobFailure(
        index=5,
        name="train_4",
        attempt=2,
        reason="out of memory",
        number=21,
        retry="retrying with 80.0 MiB (1 of 3)",
    ),
)
PROGRESS = RunProgress(
    name="ml_pipeline",
    run="3.2",
    status=RunStatus.RUNNING,
    elapsed_s=754.0,
    stages=(
        StageProgress("prepare", 4, done=4),
        StageProgress("train_…", 100, done=45, failed=1, running=8),
        StageProgress("evaluate_…", 100, cancelled=1),
        StageProgress("report", 1),
    ),
    running=tuple(
        RunningJob(
            index=10 + at,
            name=f"train_{at + 40}",
            job_uuid=f"u{at}",
            attempt=2 if at == 3 else 1,
            elapsed_s=82.0 + at,
            expected_s=120.0 if at % 2 else None,
            cpu_percent=780.0 - 90 * at if at < 7 else None,
            memory_bytes=3 * GIB + 50 * at * MIB if at < 7 else None,
        )
        for at in range(8)
    ),
    failures=FAILURES,
    ready=12,
    cpus=(14.0, 16.0),
    memory_bytes=(20 * GIB, 64 * GIB),
    gpus=(1, 2),
    estimate=Estimate(310.0, ("earlier runs", "the jobs so far")),
)


def test_a_run_while_it_goes_on() -> None:
    same_as_golden("run-live", render_run_live(PROGRESS, width=80, height=24, paint=PLAIN))


def test_a_run_on_a_small_screen() -> None:
    same_as_golden("run-live-small", render_run_live(PROGRESS, width=46, height=10, paint=PLAIN))


def test_a_run_that_is_over() -> None:
    over = replace(
        PROGRESS,
        status=RunStatus.FAILED,
        running=(),
        ready=0,
        stages=tuple(replace(stage, done=stage.total, running=0) for stage in PROGRESS.stages[:1]),
    )
    same_as_golden("run-live-over", render_run_live(over, width=80, height=24, paint=PLAIN))


def test_many_stages_are_counted_when_they_do_not_fit() -> None:
    stages = tuple(StageProgress(f"step_{at}", 1, done=1 if at < 30 else 0) for at in range(60))
    lines = render_run_live(replace(PROGRESS, stages=stages), width=80, height=20, paint=PLAIN)
    assert len(lines) <= 20
    assert any("30 of 60 stages done" in line for line in lines)


def test_progress_on_a_pipe() -> None:
    lines = [
        end_line("prepare_1", 3.0, 2.5),
        end_line("train_1", 63.0, 60.0, attempt=2),
        *(failure_line(failure, 64.0) for failure in FAILURES),
        summary_line(PROGRESS),
    ]
    same_as_golden("run-lines", lines)


@pytest.mark.parametrize("width", [20, 33, 46, 60, 80, 120, 200])
@pytest.mark.parametrize("height", [2, 5, 10, 24, 60])
def test_no_picture_is_larger_than_the_screen(width: int, height: int) -> None:
    lines = render_run_live(PROGRESS, width=width, height=height, paint=Palette(is_on=True))
    assert len(lines) <= height
    assert max(visible_width(line) for line in lines) <= width


@pytest.mark.parametrize(
    ("unknown", "expected_message"), [(0, "about 05:10 left, from earlier runs"), (2, "at least 05:10 left")]
)
def test_what_is_left_says_how_sure_it_is(unknown: int, expected_message: str) -> None:
    estimate = Estimate(310.0, ("earlier runs",), unknown)
    [head, *_] = render_run_live(replace(PROGRESS, estimate=estimate), width=120, height=24, paint=PLAIN)
    assert expected_message in head


def test_while_nothing_runs_nobody_is_reported_how_long_it_takes() -> None:
    waiting = replace(PROGRESS, running=(), stages=(StageProgress("train", 4),))
    soon = replace(PROGRESS, estimate=Estimate(0.4, ("earlier runs",)))
    later = replace(PROGRESS, estimate=Estimate(40.0, ("earlier runs",)))
    assert ["left" in summary_line(one) for one in (waiting, soon, later)] == [False, False, True]


def test_a_bar_is_full_only_when_nothing_is_left() -> None:
    stages = (StageProgress("almost", 10_000, done=9_999), StageProgress("all", 10_000, done=10_000))
    lines = render_run_live(replace(PROGRESS, stages=stages), width=80, height=24, paint=PLAIN)
    assert "·" in lines[1]
    assert "·" not in lines[2]


counts = st.integers(0, 10**6)
stages_seen = st.builds(
    lambda name, parts: StageProgress(name, sum(parts), *parts[:4]), st.text(), st.tuples(*[counts] * 5)
)
running_jobs = st.builds(
    RunningJob,
    index=counts,
    name=st.text(),
    job_uuid=st.text(),
    attempt=st.integers(1, 99),
    elapsed_s=st.floats(0, 1e9),
    expected_s=st.none() | st.floats(0, 1e9),
    cpu_percent=st.none() | st.floats(0, 1e6),
    memory_bytes=st.none() | st.integers(0, 2**60),
)
failed_jobs = st.builds(
    JobFailure, index=counts, name=st.text(), attempt=counts, reason=st.text(), last_line=st.text()
)


@given(
    name=st.text(),
    stages=st.lists(stages_seen, max_size=30),
    running=st.lists(running_jobs, max_size=30),
    failures=st.lists(failed_jobs, max_size=9),
    status=st.sampled_from(RunStatus),
    message=st.text(),
    width=st.integers(20, 200),
    height=st.integers(2, 60),
)
def test_whatever_runs_there_are_a_picture_fits(
    name: str,
    stages: list[StageProgress],
    running: list[RunningJob],
    failures: list[JobFailure],
    status: RunStatus,
    message: str,
    width: int,
    height: int,
) -> None:
    progress = replace(
        PROGRESS,
        name=name,
        stages=tuple(stages),
        running=tuple(running),
        failures=tuple(failures),
        status=status,
        message=message,
    )
    lines = render_run_live(progress, width=width, height=height, paint=Palette(is_on=True))
    assert len(lines) <= height
    assert max(map(visible_width, lines)) <= width
    assert not any("\n" in line or "\r" in line for line in lines)


def test_what_a_job_said_cannot_move_the_cursor() -> None:
    nasty = JobFailure(index=0, name="a\x1b[2J", attempt=1, reason="exit code 1", last_line="\x1b]0;x\x07\r")
    lines = render_run_live(replace(PROGRESS, failures=(nasty,)), width=80, height=24, paint=PLAIN)
    assert not any("\x1b" in line or "\r" in line for line in lines)


def observed(job: str, gigabytes: float, **more: float) -> Observation:
    return Observation(
        job=job,
        run=1,
        attempt=1,
        status=Status.SUCCESS,
        duration_s=more.get("seconds", 600.0),
        memory_bytes=int(gigabytes * GIB),
        peak_cores=more.get("cores", 1.9),
    )


def test_advice_for_a_group_whose_jobs_differ() -> None:
    jobs = [observed(f"small_{at}", 1 + at / 10) for at in range(9)] + [observed("large", 16, cores=3.7)]
    group = Group(
        name="work",
        current=Requirements(cpus=8, memory_bytes=8 * GIB, timeout_s=600),
        observations=tuple(jobs),
    )
    [found] = advise([group])
    same_as_golden("rightsize", render_group(found, width=80, paint=PLAIN))


def test_advice_for_a_job_with_nothing_written() -> None:
    group = Group(
        name="report",
        current=Requirements(),
        observations=(observed("report", 0.1),),
        is_named=False,
        has_requirements=False,
    )
    [found] = advise([group])
    same_as_golden("rightsize-bare", render_group(found, width=80, paint=PLAIN))


def side(label: str, spec: str, **jobs: JobSide) -> RunSide:
    return RunSide(
        label=label, jobs=jobs, wall_s=120.0, spec_text=spec, options={"cpus": 2 if label == "3.1" else 4}
    )


def ran(seconds: float, gigabytes: float, state: str = "completed", **more: int) -> JobSide:
    return JobSide(
        state=state,
        command="train",
        requirements=Requirements(memory_bytes=more.get("asked")),
        duration_s=seconds,
        cpu_s=0.9 * seconds,
        memory_bytes=int(gigabytes * GIB),
    )


def test_two_runs_side_by_side() -> None:
    found = compare_runs(
        side(
            "3.1",
            "name: ml\nmemory: 2g\n",
            train=ran(120, 2),
            same=ran(9, 1),
            broken=ran(5, 0.1, "failed"),
            old=ran(1, 1),
        ),
        side(
            "3.2",
            "name: ml\nmemory: 4g\n",
            train=ran(70, 3, asked=4 * GIB),
            same=ran(9, 1),
            broken=ran(10, 0.1),
            new=ran(1, 1),
        ),
    )
    same_as_golden("run-diff", render_run_diff(found, width=90, paint=PLAIN, shows_all=False))


def sweep_diff() -> RunDiff:
    names = [f"train_with_a_long_name_{rate}_160" for rate in ("0.001", "0.002", "0.003")]
    before = side("3.1", "", **{name: ran(120, 2) for name in names})
    return compare_runs(before, side("3.2", "", **{name: ran(70, 3, asked=4 * GIB) for name in names}))


def test_jobs_of_a_sweep_stay_apart_where_their_names_are_cut() -> None:
    lines = render_run_diff(sweep_diff(), width=80, paint=PLAIN, shows_all=False)
    names = [line.split()[0] for line in lines if line.startswith("train_")]
    assert len(set(names)) == 3
    assert all("…" in name and name.endswith("_160") for name in names)
    assert max(map(visible_width, lines)) <= 80
    assert any(line.startswith("Omitted: CPU") for line in lines)


def test_a_pipe_gets_every_column_and_whole_names() -> None:
    lines = render_run_diff(sweep_diff(), width=None, paint=PLAIN, shows_all=False)
    [head] = [line for line in lines if line.startswith("JOB")]
    assert head.split() == ["JOB", "STATE", "TIME", "CPU", "MEMORY", "CHANGED"]
    assert any(line.startswith("train_with_a_long_name_0.002_160") for line in lines)


def test_names_of_stages_take_the_room_that_is_free() -> None:
    name = "train_with_a_rather_long_name_0.001_…"
    progress = replace(PROGRESS, stages=(StageProgress(name, 100, done=45),))
    assert name in render_run_live(progress, width=110, height=20, paint=PLAIN)[1]
    narrow = render_run_live(progress, width=60, height=20, paint=PLAIN)[1]
    assert narrow.startswith("train_with_a_rather_long_n")
    assert visible_width(narrow) <= 60
