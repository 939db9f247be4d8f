"""The folder of a recipe's job: who may change it, what its documents say, what a failure leaves."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from joblens.app.recipes.jobs import make_job
from joblens.app.recipes.process import ProcessOptions, plan_recipe
from joblens.app.wiring.drivers import StoreConnection, warn_in_python
from joblens.data.base.job_folder import take_lock
from joblens.data.base.messages import Ended
from joblens.data.base.reasons import with_location
from joblens.data.executor.coordinator import Coordinator
from joblens.data.executor.executor import JobRun, StepUsage
from joblens.data.executor.job_summary import JobSummary
from joblens.data.executor.local_pool import LocalPool
from joblens.data.partition.worker_context import WorkerContext
from joblens.model.errors import JobIsRunning
from joblens.model.recipes.recipe import RecipeEvent
from joblens.model.settings import Settings
from joblens.plan.workflows.plan_document import plan_digest
from tests.integration import recipe_executor as executors
from tests.integration.recipe_executor import MAPPERS, WITH_GLOBAL

PARTS = {"mode": "manual", "num_of_partitions": 3}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return executors.write_lines(tmp_path_factory.mktemp("data") / "rows.jsonl", executors.documents(900))


def document(path: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(Path(path).read_text())
    return read


def planned(folder: Path, data: Path, *, start_over: bool = False) -> Any:
    recipe = {
        "project_name": "one",
        "dataset_path": str(data),
        "export_path": str(folder / "out.jsonl"),
        "work_dir": str(folder / "work"),
        "np": 1,
        "process": MAPPERS,
    }
    return plan_recipe(
        recipe,
        ProcessOptions(job_id="job", start_over=start_over),
        StoreConnection(Settings(), warn_in_python),
    ).job


# ---- one at a time -----------------------------------------------------------------------------------------


def test_a_job_that_runs_is_not_planned_again(tmp_path: Path, data: Path) -> None:
    first = planned(tmp_path, data)
    make_job(first)
    again = planned(tmp_path, data, start_over=True)  # nobody is at it yet
    folder = executors.folder_of(first.plan)
    lock = take_lock(folder)
    before = Path(folder.plan).read_bytes()
    with pytest.raises(JobIsRunning):
        make_job(again)
    assert Path(folder.plan).read_bytes() == before
    os.close(lock)
    make_job(again)
    assert Path(folder.plan).read_bytes() != before


def test_starting_over_keeps_the_file_that_others_wait_at(tmp_path: Path, data: Path) -> None:
    make_job(planned(tmp_path, data))
    again = planned(tmp_path, data, start_over=True)
    lock = executors.folder_of(again.plan).lock
    before = os.stat(lock).st_ino
    make_job(again)
    assert os.stat(lock).st_ino == before


def test_an_executor_carries_out_only_the_plan_that_it_was_started_for(tmp_path: Path, data: Path) -> None:
    first = planned(tmp_path, data)
    make_job(first)
    time.sleep(0.001)
    make_job(planned(tmp_path, data, start_over=True))
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "joblens.data", first.plan.job_dir, plan_digest(first.plan)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == JobIsRunning("").exit_code
    assert "replanned" in ran.stderr
    assert not (tmp_path / "out.jsonl").exists()


# ---- documents ---------------------------------------------------------------------------------------------


def test_the_report_of_a_job_has_every_row_in_its_place(tmp_path: Path, data: Path) -> None:
    job = executors.plan(tmp_path, data, WITH_GLOBAL, partition=PARTS)
    assert executors.carry_out(job) == 0
    report = document(executors.folder_of(job).final_mapping)
    assert report["original_dataset_size"] == 900
    parts = report["partitions"]
    assert [part["original_start_idx"] for part in parts[1:]] == [
        part["original_end_idx"] for part in parts[:-1]
    ]
    assert parts[-1]["original_end_idx"] == 900
    read = {
        event.partition_id: event.metadata["checksum"]
        for event in executors.events_of(job)
        if event.event_type == "partition_creation_complete" and isinstance(event.metadata, dict)
    }
    assert {part["partition_id"]: part["checksum"] for part in parts} == read
    assert all(part["processing_start_time"] <= part["processing_end_time"] for part in parts)
    assert len({part["output_checksum"] for part in parts} | set(read.values())) == 6


def test_a_partition_that_was_tried_again_says_so_in_the_end(tmp_path: Path, data: Path) -> None:
    flag = tmp_path / "flag"
    own = tmp_path / "own.py"
    own.write_text(
        "import joblens, os\n"
        "@joblens.operator(name='once_filter')\n"
        "def once_filter(row: dict, flag: str = '') -> bool:\n"
        "    if os.path.exists(flag):\n"
        "        os.unlink(flag)\n"
        "        os._exit(9)\n"
        "    return True\n"
    )
    flag.touch()
    process = [{"once_filter": {"flag": str(flag)}}, {"document_deduplicator": None}]
    keys = {"partition": {"mode": "manual", "num_of_partitions": 1}, "custom_operator_paths": [str(own)]}
    job = executors.plan(tmp_path, data, process, **keys)
    assert executors.carry_out(job) == 0
    assert document(executors.folder_of(job).final_mapping)["partitions"][0]["retry_count"] == 1
    result = [
        event.error_message for event in executors.events_of(job) if event.event_type == "partition_retry"
    ]
    assert [str(each).partition(": ")[0] for each in result] == ["partition 0, operator 0 once_filter"]


def test_a_summary_is_complete_also_when_there_was_nothing_to_do(tmp_path: Path) -> None:
    empty = tmp_path / "rows.jsonl"
    empty.touch()
    job = executors.plan(tmp_path, empty, MAPPERS)
    for runs in (1, 2):
        assert executors.carry_out(job) == 0
        summary = executors.summary_of(job)
        assert (summary["runs"], summary["rows_in"], summary["failed_partitions"]) == (runs, 0, [])
        assert summary["completed_partitions"] == summary["total_partitions"]


def test_the_time_between_runs_is_none_of_the_job(tmp_path: Path, data: Path) -> None:
    job = executors.plan(tmp_path, data, MAPPERS, partition=PARTS)
    assert executors.carry_out(job) == 0
    path = Path(executors.folder_of(job).summary)
    first = document(str(path))
    earlier = {**first, "start_time": first["start_time"] - 1000, "end_time": first["end_time"] - 1000}
    path.write_text(json.dumps(earlier))
    assert executors.carry_out(job) == 0
    second = document(str(path))
    assert second["duration"] == pytest.approx(first["duration"] + second["run_duration"])


def test_all_that_was_used_belongs_to_someone(tmp_path: Path, data: Path) -> None:
    job = executors.plan(tmp_path, data, MAPPERS, partition=PARTS)
    assert executors.carry_out(job) == 0
    steps = {step["name"]: step for step in executors.summary_of(job)["steps"]}
    assert list(steps) == ["reading", "exporting", "coordinating"]
    assert steps["reading"]["read_bytes"] >= data.stat().st_size
    assert steps["exporting"]["written_bytes"] >= (tmp_path / "out.jsonl").stat().st_size
    assert steps["coordinating"]["written_bytes"] < steps["exporting"]["written_bytes"]
    saved = [
        event.metadata
        for event in executors.events_of(job)
        if event.event_type == "checkpoint_save" and isinstance(event.metadata, dict)
    ]
    assert all(each["resources"]["written_bytes"] >= each["size_bytes"] for each in saved)


# ---- what goes wrong ---------------------------------------------------------------------------------------


def test_what_was_being_written_is_removed_wherever_it_lies(tmp_path: Path, data: Path) -> None:
    job = executors.plan(tmp_path, data, MAPPERS)
    folder = executors.folder_of(job)
    left = [f"{where}/x.1.part" for where in (folder.path, folder.metadata, folder.logs, folder.rejects)]
    for path in left:
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).touch()
    assert executors.carry_out(job) == 0
    assert [path for path in left if os.path.exists(path)] == []


def test_a_job_whose_folder_is_removed_ends_soon_and_says_so(tmp_path: Path, data: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(
        "import joblens, time\n"
        "@joblens.operator(name='slow_filter')\n"
        "def slow_filter(row: dict) -> bool:\n"
        "    time.sleep(1)\n"
        "    return True\n"
    )
    job = executors.plan(tmp_path, data, [{"slow_filter": None}], custom_operator_paths=[str(own)])
    process = executors.start(job)
    events = executors.folder_of(job).events
    executors.wait_for(lambda: os.path.exists(events) and b"op_start" in Path(events).read_bytes(), process)
    shutil.rmtree(job.job_dir)
    _, result = process.communicate(timeout=executors.TIMEOUT_S)
    assert process.returncode == 1
    assert f"the job's directory {job.job_dir} was removed while the job ran" in result.decode()


def test_a_full_disk_is_reported_with_its_place_and_what_to_do(tmp_path: Path) -> None:
    nameless = OSError(28, "No space left on device")
    result = with_location(nameless, (str(tmp_path),))
    assert result.startswith(f"no space left for {tmp_path} (")
    assert "free some space" in result


def test_log_lines_have_one_time_and_no_line_of_a_program(tmp_path: Path, data: Path) -> None:
    job = executors.plan(tmp_path, data, MAPPERS)
    assert executors.carry_out(job) == 0
    first = Path(executors.folder_of(job).log).read_text().splitlines()[0]
    assert first[23:] == f" | INFO     | joblens.job - job_start: job {job.job_id} starts"


def test_the_end_of_a_job_is_reported_although_its_events_could_not_be_written(
    tmp_path: Path, data: Path
) -> None:
    job = executors.plan(tmp_path, data, MAPPERS)
    folder = executors.folder_of(job)
    summary = JobSummary(job, folder, time.time())
    pool = LocalPool(1, lambda task, _: Ended(task.id))
    messages: list[str] = []

    def log(events: Sequence[RecipeEvent]) -> None:
        if os.path.exists(folder.reserve):  # until the job gives it back there is no room
            raise OSError(28, "No space left on device")
        messages.extend(event.event_type for event in events)

    coordinator = Coordinator(WorkerContext(job), pool, log, lambda: None)
    end = JobRun(job, pool, log, StepUsage(summary)).run(coordinator, summary, is_resumed=False)
    assert (end.status, end.exit_code) == ("failed", 1)
    assert "no space left for" in end.error_message
    assert messages == ["step_complete", "job_failed"]
    assert executors.summary_of(job)["status"] == "failed"
