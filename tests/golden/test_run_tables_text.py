"""What people read about runs, pinned as in test_text.py."""

from msgspec.structs import replace

from joblens.analysis.runs.status import INTERRUPTED, RunRow, WorkflowRow
from joblens.analysis.runs.table import ResultRow
from joblens.analysis.sizing.utilization import check_utilization
from joblens.model.jobs.job import Job, Outcome, Record, Requirements, Status, Usage
from joblens.model.runs.run import JobState, Run, RunOptions, Workflow
from joblens.views.runs.results import render_results
from joblens.views.runs.rightsize import render_utilization
from joblens.views.runs.workflows import render_workflow, render_workflows
from joblens.views.text.style import PLAIN, Palette, visible_width
from tests.golden.golden import same_as_golden

GB = 1024**3
NOON_US = 1_763_208_000_000_000
SECOND = 1_000_000


def _record(
    number: int, name: str, needs: Requirements, outcome: Outcome, *, peak_percent: float | None = None
) -> Record:
    job = Job(uuid=f"u{number}", argv=("x",), created_at_us=NOON_US, name=name, requirements=needs)
    if peak_percent is not None:
        profile = {"process_cpu": {"max_percent": peak_percent}}
        outcome = Outcome(
            status=outcome.status,
            ended_at_us=outcome.ended_at_us,
            duration_s=outcome.duration_s,
            usage=outcome.usage,
            profile=profile,
        )
    return Record(number=number, status=outcome.status, job=job, outcome=outcome)


def _ended(duration_s: float, memory_gb: float, status: Status = Status.SUCCESS, **fields: object) -> Outcome:
    usage = Usage(memory_peak_bytes=round(memory_gb * GB))
    return Outcome(status=status, ended_at_us=NOON_US, duration_s=duration_s, usage=usage, **fields)  # type: ignore[arg-type]


RECORDS = [
    _record(
        15,
        "train_model",
        Requirements(cpus=8, memory_bytes=8 * GB, timeout_s=7200),
        _ended(9900, 10.5),
        peak_percent=720.3,
    ),
    _record(16, "large_preprocess", Requirements(cpus=8), _ended(100, 1), peak_percent=950.5),
    _record(
        17,
        "preprocess",
        Requirements(cpus=4, memory_bytes=4 * GB, timeout_s=600),
        _ended(450, 2.1),
        peak_percent=380.2,
    ),
]
FAILED = [
    _record(
        18,
        "leaky",
        Requirements(memory_bytes=GB // 2),
        _ended(12, 0.499, Status.FAILED, exit_code=137, reason="out-of-memory"),
    ),
    _record(
        19,
        "killed",
        Requirements(memory_bytes=2 * GB),
        _ended(12, 1.5, Status.FAILED, exit_code=137, reason="exited"),
    ),
]


def test_check_tells_the_violations() -> None:
    report = check_utilization(RECORDS)
    same_as_golden("check", render_utilization(report, show_all=False, run="3.1"))


def test_check_with_all_tells_the_others_too() -> None:
    report = check_utilization([*RECORDS, *FAILED])
    same_as_golden("check-all", render_utilization(report, show_all=True))


def test_check_tells_limits_that_were_hit_and_likely_causes() -> None:
    same_as_golden("check-failed", render_utilization(check_utilization(FAILED), show_all=False))


def test_check_without_a_violation_is_one_friendly_line() -> None:
    (line,) = render_utilization(check_utilization(RECORDS[2:]), show_all=False)
    assert line == "✓ All jobs stayed within their requests (1 result checked)."


def test_check_tells_of_jobs_that_asked_for_far_more() -> None:
    needs = Requirements(cpus=8, memory_bytes=8 * GB, timeout_s=7200)
    modest = [_record(at, name, needs, _ended(9, 1), peak_percent=99.0) for at, name in enumerate("aab")]
    lines = render_utilization(check_utilization(modest), show_all=False, run="3.1")
    result = "2 jobs requested more than twice what they used. For better values: joblens rightsize 3.1"
    assert lines[1:] == ["", result]


def test_one_core_and_a_time_limit_are_not_too_much_to_ask_for() -> None:
    needs = Requirements(cpus=1, memory_bytes=GB, timeout_s=7200)
    modest = _record(1, "a", needs, _ended(9, 0.8), peak_percent=5.0)
    assert len(render_utilization(check_utilization([modest]), show_all=False, run="3.1")) == 1


def test_check_with_nothing_to_check_says_so() -> None:
    (nothing_ran,) = render_utilization(check_utilization([]), show_all=False)
    assert nothing_ran == "Nothing to check: no job of this run has ended."
    bare = _record(1, "bare", Requirements(), _ended(1, 1))
    (no_needs,) = render_utilization(check_utilization([bare]), show_all=False)
    assert no_needs == "Nothing to check: none of 1 result has requirements."


ROWS = [
    ResultRow(
        index=0,
        name="preprocess",
        state=JobState.COMPLETED,
        attempts=1,
        job_id=15,
        return_code=0,
        duration_s=450.0,
        peak_cpu_percent=380.2,
        avg_cpu_percent=301.4,
        peak_memory_bytes=round(2.1 * GB),
        avg_memory_bytes=round(0.0123 * GB),
    ),
    ResultRow(
        index=1,
        name="train_model",
        state=JobState.FAILED,
        why="out of memory",
        attempts=2,
        job_id=17,
        return_code=137,
        duration_s=4320.0,
        peak_memory_bytes=8 * GB,
        peak_memory_is_least=True,
    ),
    ResultRow(
        index=2,
        name="evaluate",
        state=JobState.BLOCKED,
        why="needs train_model (failed), which must be run again first",
    ),
]


def test_results() -> None:
    same_as_golden("results", render_results(ROWS, width=None, paint=PLAIN))


def test_results_without_a_failure_have_no_reasons() -> None:
    head = render_results(ROWS[:1], width=None, paint=PLAIN)[0]
    assert "Status" in head
    assert "Reason" not in head


def test_the_memory_of_small_jobs_is_reported_with_three_digits() -> None:
    tiny = replace(ROWS[0], peak_memory_bytes=300 * 1024, avg_memory_bytes=5 * 1024**2)
    [line] = render_results([tiny], width=None, paint=PLAIN)[1:]
    assert line.split()[-3:-1] == ["0.000286", "0.00488"]


def test_results_on_a_terminal_are_never_wider_than_it() -> None:
    for width in (25, 40, 60, 80, 100, 140):
        lines = render_results(ROWS, width=width, paint=Palette(is_on=True))
        assert max(visible_width(line) for line in lines) <= width
        assert "Status" in lines[0]


def test_reasons_that_a_terminal_has_no_room_for_stand_below_the_table() -> None:
    why = "needs train (failed), which must be run again first, and that may take a while"
    rows = [replace(ROWS[0], name=f"job{place}", why=why) for place in range(5)]
    lines = render_results(rows, width=80, paint=PLAIN)
    assert lines[6] == ""
    assert " ".join(line.strip() for line in lines[7:-2]) == f"job0, job1, job2 and 2 more: {why}"
    assert len(render_results(rows, width=200, paint=PLAIN)[6:]) == 2  # the note on units alone


WORKFLOW = Workflow(
    uuid="6f1e0c44-0000-4000-8000-000000000000",
    name="ml-pipeline",
    created_at_us=NOON_US,
    number=2,
    description="Train models",
    source="/home/ann/ml.yaml",
    user="ann",
)


def _run(number: int, **fields: object) -> Run:
    return Run(
        uuid=f"r{number}",
        workflow_uuid=WORKFLOW.uuid,
        workflow_number=2,
        number=number,
        created_at_us=NOON_US,
        jobs=4,
        options=RunOptions(output_dir="output"),
        **fields,  # type: ignore[arg-type]
    )


RUNS = [
    RunRow(
        run=_run(1, started_at_us=NOON_US, ended_at_us=NOON_US + 90 * SECOND),
        status="failed",
        done=2,
        failed=1,
        took_s=90.0,
    ),
    RunRow(run=_run(2, started_at_us=NOON_US + 100 * SECOND), status=INTERRUPTED, done=1, failed=0),
    RunRow(
        run=_run(3, started_at_us=NOON_US + 200 * SECOND), status="running", done=0, failed=0, took_s=100.0
    ),
]
NOW_US = NOON_US + 300 * SECOND


def test_workflows() -> None:
    fresh = Workflow(uuid="u", name="sweep", created_at_us=NOON_US, number=3)
    rows = [
        WorkflowRow(workflow=fresh, runs=0, last=None),
        WorkflowRow(workflow=WORKFLOW, runs=3, last=RUNS[-1]),
    ]
    same_as_golden("workflows", render_workflows(rows, now_us=NOW_US, width=80, paint=PLAIN))


def test_one_workflow() -> None:
    same_as_golden("workflow", render_workflow(WORKFLOW, RUNS, now_us=NOW_US, width=80, paint=PLAIN))


def test_one_workflow_that_has_not_been_run() -> None:
    last = render_workflow(WORKFLOW, [], now_us=NOW_US, width=80, paint=PLAIN)[-1]
    assert last == "Not run yet: joblens run-jobs 2"
