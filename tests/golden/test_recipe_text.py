"""What is shown of a recipe's job before, while and after it runs, pinned as in test_text.py."""

from msgspec.structs import replace

from joblens.analysis.recipes.usage import operator_table
from joblens.model.jobs.details import Details
from joblens.model.recipes.recipe import InputFile, OperatorCall, Partition, Recipe, RecipePlan, Slice, Stage
from joblens.model.recipes.snapshot import (
    JobSnapshot,
    OperatorProgress,
    PartitionStatus,
    ProcessingStatus,
    StepProgress,
)
from joblens.views.jobs.show import render_parts, render_show
from joblens.views.recipes.process import end_document, plan_document, render_recipe_end, render_recipe_plan
from joblens.views.recipes.snapshot import progress_line, render_recipe_live
from joblens.views.text.style import PLAIN
from tests.golden.golden import same_as_golden
from tests.golden.test_text import ENDED, NOW_US

MIB = 2**20
KINDS = ("mapper", "filter", "deduplicator")
PLAN = RecipePlan(
    job_id="20251115_203105_9fc21b",
    job_dir="/data/out/20251115_203105_9fc21b",
    recipe=Recipe(
        name="clean",
        dataset_path=("/data/*.jsonl",),
        export_path="/data/out/clean.jsonl",
        work_dir="/data/out",
        process=(
            OperatorCall(index=0, name="clean_links_mapper"),
            OperatorCall(index=1, name="text_length_filter", params={"min_len": 40, "max_len": 9000}),
            OperatorCall(index=2, name="document_deduplicator"),
        ),
    ),
    recipe_text="",
    recipe_path="/data/clean.yaml",
    stages=(Stage(index=0, first=0, end=2, closing=2), Stage(index=1, first=3, end=3)),
    partitions=tuple(
        Partition(
            id=number,
            size_bytes=50 * MIB,
            slices=(Slice(path="/data/a.jsonl", format="jsonl", start=0, end=50 * MIB),),
        )
        for number in range(4)
    ),
    inputs=tuple(
        InputFile(path=f"/data/{name}.jsonl", size=50 * MIB, modified_ns=0, digest="") for name in "abcdefg"
    ),
    columns=("text",),
    checkpoint_after=(0,),
    workers=2,
    budget_bytes=2048 * MIB,
    total_bytes=200 * MIB,
    reasons=("memory budget 2.0 GiB: half of 4.0 GiB free", "2 workers: set by np"),
)
SNAPSHOT = JobSnapshot(
    job_id=PLAN.job_id,
    overall_status=ProcessingStatus.IN_PROGRESS,
    total_partitions=4,
    completed_partitions=1,
    in_progress_partitions=2,
    total_operations=9,
    completed_operations=5,
    rejected_rows=3,
    rows_in=75_000,
    eta_seconds=75.0,
    runs=1,
    operators=(
        OperatorProgress(
            operation_idx=0,
            operation_name="clean_links_mapper",
            planned=4,
            completed=3,
            in_progress=1,
            input_rows=75_000,
            output_rows=75_000,
            duration_seconds=1.5,
            cpu_seconds=1.4,
            memory_peak_bytes=300 * MIB,
            read_bytes=150 * MIB,
            written_bytes=20 * MIB,
            rejected_rows=3,
        ),
        OperatorProgress(
            operation_idx=1,
            operation_name="text_length_filter",
            planned=4,
            completed=2,
            in_progress=1,
            input_rows=50_000,
            output_rows=49_999,
            duration_seconds=0.25,
            cpu_seconds=0.2,
            memory_peak_bytes=310 * MIB,
        ),
        OperatorProgress(operation_idx=2, operation_name="document_deduplicator", planned=1, is_global=True),
    ),
    steps=(
        StepProgress(
            name="reading",
            wall_seconds=0.5,
            cpu_seconds=0.45,
            memory_peak_bytes=200 * MIB,
            read_bytes=200 * MIB,
            written_bytes=0,
        ),
        StepProgress(
            name="exporting",
            wall_seconds=0.25,
            cpu_seconds=0.125,
            memory_peak_bytes=210 * MIB,
            read_bytes=0,
            written_bytes=180 * MIB,
        ),
        StepProgress(name="coordinating", cpu_seconds=0.3, memory_peak_bytes=60 * MIB),
    ),
)
FAILED = replace(
    SNAPSHOT,
    overall_status=ProcessingStatus.PARTIAL,
    in_progress_partitions=0,
    completed_partitions=3,
    failed_partitions=1,
    retries=3,
    export_path="/data/out/clean.jsonl",
    partition_statuses={
        2: PartitionStatus(
            partition_id=2,
            status=ProcessingStatus.FAILED,
            retry_count=3,
            error_message="worker 4242 was killed by SIGKILL",
        )
    },
)
RECORD = ENDED[0]
TABLE = operator_table(SNAPSHOT, PLAN, NOW_US)


def test_what_would_be_done() -> None:
    same_as_golden("recipe-plan", render_recipe_plan(PLAN, KINDS, is_resumed=False, width=100, paint=PLAIN))


def test_a_job_under_way() -> None:
    shown = render_recipe_live(SNAPSHOT, "clean", elapsed_s=62.0, width=100, height=24, paint=PLAIN)
    same_as_golden("recipe-live", shown)


def test_a_job_under_way_on_a_small_terminal() -> None:
    shown = render_recipe_live(SNAPSHOT, "clean", elapsed_s=62.0, width=40, height=4, paint=PLAIN)
    assert all(len(line) <= 40 for line in shown)
    same_as_golden("recipe-live-small", shown)


def test_a_job_under_way_as_a_line() -> None:
    line = progress_line(SNAPSHOT, 62.0)
    assert line == "01:02  56%, 1 partition of 4, 75,000 rows in, about 01:15 left"


def test_the_end_of_a_job() -> None:
    done = replace(
        SNAPSHOT, overall_status=ProcessingStatus.COMPLETED, completed_partitions=4, in_progress_partitions=0
    )
    shown = render_recipe_end(PLAN, RECORD, done, TABLE, why=None, width=100, paint=PLAIN)
    same_as_golden("recipe-ending", shown)


def test_the_end_of_a_job_without_some_partitions() -> None:
    why = "1 of 4 partitions failed"
    shown = render_recipe_end(PLAN, RECORD, FAILED, TABLE, why=why, width=100, paint=PLAIN)
    same_as_golden("recipe-ending-partial", shown)


def test_show_has_the_operators_of_a_recipe() -> None:
    details = Details(operators=TABLE)
    shown = render_parts(RECORD, [], details, ["operators"], now_us=NOW_US, width=100, paint=PLAIN)
    same_as_golden("show-only-operators", shown)
    whole = render_show(RECORD, [], now_us=NOW_US, width=100, paint=PLAIN, details=details)
    assert "Operators (4 partitions, 2 workers)" in whole


def test_show_of_another_job_says_that_it_has_no_operators() -> None:
    shown = render_parts(RECORD, [], Details(), ["operators"], now_us=NOW_US, width=100, paint=PLAIN)
    assert shown[-1] == "  unknown: only jobs of recipes have operators"


def test_the_documents_have_the_same() -> None:
    end = end_document(PLAN, RECORD, FAILED, TABLE, "1 of 4 partitions failed")
    assert (end["status"], end["rows_in"], end["rejected_rows"]) == ("partial", 75_000, 3)
    assert end["partitions"] == {"total": 4, "completed": 3, "failed": 1}
    assert [use["name"] for use in end["operators"]] == [call.name for call in PLAN.recipe.process]
    assert [use["name"] for use in end["steps"]] == ["reading", "exporting", "coordinating"]
    plan = plan_document(PLAN, KINDS, is_resumed=False)
    assert [one["kind"] for one in plan["operators"]] == list(KINDS)
    assert len(plan["partitions"]) == 4


def _end(snapshot: JobSnapshot, width: int = 100, why: str | None = None, files: tuple[str, ...] = ()) -> str:
    return "\n".join(
        render_recipe_end(
            PLAN, RECORD, snapshot, TABLE, why=why, width=width, paint=PLAIN, export_files=files
        )
    )


def test_a_job_that_failed_does_not_say_that_rows_came_out() -> None:
    failed = replace(SNAPSHOT, overall_status=ProcessingStatus.FAILED, rows_in=75_000, rows_out=49_999)
    shown = _end(failed)
    assert "rows       75,000 in, 3 rejected, none out" in shown
    assert "export " not in shown
    assert end_document(PLAN, RECORD, failed, TABLE, "why")["rows_out"] is None


def test_jobs_without_rows_say_why_and_where_to_look() -> None:
    done = replace(SNAPSHOT, overall_status=ProcessingStatus.COMPLETED, rows_in=0, rows_out=0)
    shown = _end(done)
    assert "rows       all 3 rejected, none out" in shown
    assert "rejected   with reasons in /data/out/20251115_203105_9fc21b/rejects" in shown
    assert "rows       none: the dataset is empty" in _end(replace(done, rejected_rows=0))


def test_shards_are_named_as_they_are() -> None:
    done = replace(SNAPSHOT, overall_status=ProcessingStatus.COMPLETED)
    files = ("/data/out/clean-0-of-2.jsonl", "/data/out/clean-1-of-2.jsonl")
    assert "export     /data/out/clean-0-of-2.jsonl to clean-1-of-2.jsonl, 2 files" in _end(done, files=files)


def test_rejects_of_a_job_that_was_stopped_are_not_said_to_lie_there() -> None:
    stopped = replace(SNAPSHOT, overall_status=ProcessingStatus.STOPPED, rejected_rows=3)
    assert "rejected   once their partition is done, with reasons in /" in _end(stopped)


def test_partitions_that_failed_alike_are_reported_together() -> None:
    failed = ProcessingStatus.FAILED
    parts = {
        number: PartitionStatus(
            partition_id=number,
            status=failed,
            error_message=f"mine fails on {number} of {number} rows: KeyError",
        )
        for number in range(90, 97)
    }
    shown = _end(
        replace(SNAPSHOT, overall_status=failed, failed_partitions=7, partition_statuses=parts), why="why"
    )
    assert shown.count("KeyError") == 1
    assert (
        "7 partitions failed the same way (90, 91, 92, 93, 94, …); first: mine fails on 90 of 90 rows"
        in shown
    )


def test_a_reason_is_reported_once() -> None:
    part = PartitionStatus(partition_id=2, status=ProcessingStatus.FAILED, error_message="bad luck")
    failed = replace(
        SNAPSHOT,
        overall_status=ProcessingStatus.FAILED,
        failed_partitions=1,
        partition_statuses={2: part},
    )
    shown = _end(failed, why="all partitions failed: bad luck")
    assert shown.count("bad luck") == 1
    assert "  all partitions failed\n  partition 2 failed: bad luck" in shown


def test_the_table_of_the_end_fits_terminals_with_its_names_whole_where_it_can() -> None:
    done = replace(SNAPSHOT, overall_status=ProcessingStatus.COMPLETED)
    for width in (40, 60, 80, 100):
        table = _end(done, width).partition("OPERATOR")[2].partition("\n\n")[0]
        assert max(len(line) for line in f"  OPERATOR{table}".splitlines()) <= width
        assert "document_deduplicator" in table


def test_what_runs_and_what_waits_for_a_worker_are_distinguished() -> None:
    first, *others = SNAPSHOT.operators
    later = replace(others[0], in_progress=2)
    snapshot = replace(
        SNAPSHOT,
        in_progress_partitions=4,
        operators=(replace(first, completed=4, in_progress=0), later, *others[1:]),
    )
    shown = render_recipe_live(snapshot, "clean", elapsed_s=62.0, width=100, height=24, paint=PLAIN)
    assert shown[1].endswith("1/4  2 running  2 waiting")


def test_on_a_short_terminal_the_operators_at_work_stay_in_sight() -> None:
    many = tuple(
        OperatorProgress(
            operation_idx=place,
            operation_name=f"operator_{place}_mapper",
            planned=4,
            completed=4 if place < 8 else 0,
            in_progress=2 if place == 8 else 0,
        )
        for place in range(12)
    )
    shown = render_recipe_live(
        replace(SNAPSHOT, operators=many), "clean", elapsed_s=62.0, width=60, height=8, paint=PLAIN
    )
    assert len(shown) == 8
    assert [line.split()[0] for line in shown[3:7]] == [f"operator_{place}_mapper" for place in (6, 7, 8, 9)]
    assert shown[7] == "… and 8 more"
