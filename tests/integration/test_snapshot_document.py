"""The document of a snapshot, key for key, of a job in every state that a job can be in."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import joblens
from joblens.app.recipes.snapshots import LiveSnapshot
from joblens.model.recipes.recipe import RecipePlan
from tests.integration.recipe_executor import (
    TIMEOUT_S,
    carry_out,
    documents,
    plan,
    start,
    summary_of,
    wait_for,
    write_lines,
)
from tests.integration.test_recipe_snapshots import DOCUMENT_KEYS, DOCUMENT_SECTIONS, FIXTURES, datajuicer_job

NUMBER, TEXT, NOTHING = (int, float), (str,), (type(None),)
KINDS: dict[str, dict[str, tuple[type, ...]]] = {
    "job_info": {
        "job_id": TEXT,
        "executor_type": (*TEXT, *NOTHING),
        "status": TEXT,
        "config_file": (list, *NOTHING),
        "work_dir": TEXT,
        "resumption_command": (*TEXT, *NOTHING),
        "error_message": (*TEXT, *NOTHING),
    },
    "overall_progress": dict.fromkeys(DOCUMENT_KEYS["overall_progress"], NUMBER),
    "timing": {
        "start_time": NUMBER,
        "end_time": (*NUMBER, *NOTHING),
        "duration_seconds": NUMBER,
        "duration_formatted": TEXT,
        "job_summary_duration": (*NUMBER, *NOTHING),
        "timing_source": TEXT,
    },
    "progress_summary": dict.fromkeys(DOCUMENT_KEYS["progress_summary"], NUMBER),
    "checkpointing": {
        "strategy": TEXT,
        "last_checkpoint_time": (*NUMBER, *NOTHING),
        "checkpointed_operations_count": (int,),
        "resumable": (bool,),
        "checkpoint_progress": (dict,),
        "checkpoint_dir": (*TEXT, *NOTHING),
    },
    "file_paths": dict.fromkeys(DOCUMENT_KEYS["file_paths"], (*TEXT, *NOTHING)),
    "metadata": {
        "snapshot_generated_at": TEXT,
        "events_analyzed": (int,),
        "dag_plan_loaded": (bool,),
        "job_summary_loaded": (bool,),
        "job_summary_used": (bool,),
    },
}
OPERATION_STATES = {"in_progress", "completed", "checkpointed", "failed", "interrupted"}
OPERATOR = str(FIXTURES / "troubled_operator.py")


def ready(folder: Path, *marks: str) -> RecipePlan:
    """A job of three partitions, with an operator that minds the files `hold`, `die` (at the last row) and
    `die_at_once`."""
    folder.mkdir()
    for mark in marks:
        (folder / mark).touch()
    rows = [{**row, "id": number} for number, row in enumerate(documents(20))]
    process = [
        {"clean_links_mapper": None},
        {"troubled_mapper": {"folder": str(folder)}},
        {"document_deduplicator": None},
        {"text_length_filter": {"min_len": 30}},
    ]
    return plan(
        folder,
        write_lines(folder / "rows.jsonl", rows),
        process,
        np=1,
        partition={"mode": "manual", "num_of_partitions": 3, "max_retries": 0},
        custom_operator_paths=[OPERATOR],
    )


def held(job: RecipePlan) -> subprocess.Popen[bytes]:
    """Its executor, once it has kept something and is at the operator that waits."""
    process, live = start(job), None
    while live is None or not live.refresh().operators[1].in_progress:
        assert process.poll() is None
        live = LiveSnapshot(job.job_dir)
        time.sleep(0.01)
    return process


def finished(tmp_path: Path) -> RecipePlan:
    job = ready(tmp_path / "finished")
    assert carry_out(job) == 0
    return job


def failed(tmp_path: Path) -> RecipePlan:
    job = ready(tmp_path / "failed", "die_at_once")
    assert carry_out(job) == 1
    return job


def partial(tmp_path: Path) -> RecipePlan:
    job = ready(tmp_path / "partial", "die")
    assert carry_out(job) == 1
    return job


def resumed(tmp_path: Path) -> RecipePlan:
    job = partial(tmp_path)
    (tmp_path / "partial" / "die").unlink()
    assert carry_out(job) == 0
    return job


def killed(tmp_path: Path) -> RecipePlan:
    job = ready(tmp_path / "killed", "hold")
    process = held(job)
    process.kill()
    process.communicate()
    return job


def stopped(tmp_path: Path) -> RecipePlan:
    job = ready(tmp_path / "stopped", "hold")
    process = held(job)
    assert joblens.JobUtils(job.job_dir).stop(timeout=TIMEOUT_S).success
    process.communicate()
    return job


MADE = {
    "completed": finished,
    "failed": failed,
    "partial": partial,
    "completed again": resumed,
    "killed": killed,
    "stopped": stopped,
}


@pytest.fixture(params=list(MADE))
def ended(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, RecipePlan]:
    """How a job ended, and the job."""
    return request.param, MADE[request.param](tmp_path)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RecipePlan]:
    job = ready(tmp_path / "running", "hold")
    process = held(job)
    yield job
    process.kill()
    process.communicate()


def document(job_dir: str) -> dict[str, Any]:
    analyzer = joblens.ProcessingSnapshotAnalyzer(job_dir)
    return analyzer.to_json_dict(analyzer.generate_snapshot())


def check_form(form: dict[str, Any]) -> None:
    assert list(form) == DOCUMENT_SECTIONS
    for section, kinds in KINDS.items():
        assert list(form[section]) == DOCUMENT_KEYS[section] == list(kinds)
        for key, kind in kinds.items():
            assert isinstance(form[section][key], kind), (section, key, form[section][key])
    for one in form["partition_progress"].values():
        assert one["status"] in OPERATION_STATES | {"not_started"}
        assert 0.0 <= one["progress_percentage"] <= 100.0
        assert set(one["checkpointed_operations"]) <= set(one["completed_operations"])
    for key, one in form["operation_progress"].items():
        assert key.endswith(f"_op{one['operation_idx']}_{one['operation_name']}")
        assert one["status"] in OPERATION_STATES


def check_counts(form: dict[str, Any]) -> None:
    counts, states = form["progress_summary"], [one["status"] for one in form["partition_progress"].values()]
    assert counts["completed_partitions"] == states.count("completed")
    assert counts["failed_partitions"] == states.count("failed")
    assert counts["in_progress_partitions"] == states.count("in_progress")
    assert counts["total_partitions"] == len(states)
    operations = [one["status"] for one in form["operation_progress"].values()]
    done = operations.count("completed") + operations.count("checkpointed")
    assert counts["completed_operations"] == done <= counts["total_operations"]
    kept = form["checkpointing"]["checkpoint_progress"]
    assert len(kept["checkpointed_operations"]) == operations.count("checkpointed")
    assert form["checkpointing"]["checkpointed_operations_count"] == operations.count("checkpointed")
    is_complete = form["overall_status"] == "completed"
    assert (form["overall_progress"]["overall_percentage"] == 100.0) is is_complete


def test_a_job_that_has_ended(ended: tuple[str, RecipePlan]) -> None:
    how, job = ended
    form, summary = document(job.job_dir), summary_of(job)
    check_form(form)
    check_counts(form)
    status = how.removesuffix(" again")
    assert form["overall_status"] == form["job_info"]["status"] == status
    assert form["checkpointing"]["resumable"] is True  # a complete one has kept its checkpoints
    assert form["job_info"]["resumption_command"] == summary["resumption_command"]
    assert (form["timing"]["end_time"] is None) is (status == "killed")
    assert (form["job_info"]["error_message"] is None) is (status in ("completed", "stopped", "killed"))
    if status != "killed":
        assert form["timing"]["duration_seconds"] == summary["duration"]
        assert form["timing"]["timing_source"] == "job_summary"
    if status in ("completed", "partial"):
        exported = Path(job.recipe.export_path).read_text().splitlines()
        assert form["resources"]["output_rows"] == summary["rows_out"] == len(exported)
        assert form["resources"]["input_rows"] == summary["rows_in"]
        assert form["resources"]["operations"][-1]["output_rows"] == len(exported)


def test_a_job_that_runs(running: RecipePlan) -> None:
    form = document(running.job_dir)
    check_form(form)
    check_counts(form)
    assert (form["overall_status"], form["job_info"]["status"]) == ("in_progress", "running")
    assert form["timing"]["end_time"] is None
    assert form["checkpointing"]["resumable"] is True
    current = [one["current_operation"] for one in form["partition_progress"].values()]
    assert current.count("troubled_mapper") == 1


@pytest.mark.parametrize("name", ["finished", "failed", "killed", "resumed", "global"])
def test_a_job_of_datajuicer(name: str, tmp_path: Path) -> None:
    form = document(datajuicer_job(name, tmp_path))
    check_form(form)
    check_counts(form)
    assert form["overall_status"] == (name if name in ("failed", "killed") else "completed")


# What scripts and dashboards do with it


def monitor_job(job_dir: str) -> dict[str, Any]:
    result = subprocess.run(
        [sys.executable, "-m", "joblens.snapshot", job_dir], capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        return {"error": result.stderr}
    snapshot = json.loads(result.stdout)
    return {
        "status": snapshot["overall_status"],
        "progress": snapshot["overall_progress"]["overall_percentage"],
        "duration": snapshot["timing"]["duration_formatted"],
        "resumable": snapshot["checkpointing"]["resumable"],
    }


def job_metrics(job_dir: str) -> dict[str, Any]:
    snapshot = joblens.create_snapshot(job_dir)
    return {
        "job_id": snapshot.job_id,
        "status": snapshot.overall_status.value,
        "progress": {
            "partitions": f"{snapshot.completed_partitions}/{snapshot.total_partitions}",
            "operations": f"{snapshot.completed_operations}/{snapshot.total_operations}",
        },
        "timing": {"duration": snapshot.total_duration, "start_time": snapshot.job_start_time},
        "checkpointing": {"resumable": snapshot.resumable, "strategy": snapshot.checkpoint_strategy},
    }


def test_an_automation_script_and_a_dashboard_are_reported_the_same(tmp_path: Path) -> None:
    job = resumed(tmp_path)
    status, summary = monitor_job(job.job_dir), summary_of(job)
    assert f"{status['status']}, {status['progress']:.1f}%" == "completed, 100.0%"
    assert status["resumable"] is True
    metrics = job_metrics(job.job_dir)
    assert metrics == {
        "job_id": "job",
        "status": "completed",
        "progress": {"partitions": "3/3", "operations": "10/10"},
        "timing": {"duration": summary["duration"], "start_time": summary["start_time"]},
        "checkpointing": {"resumable": True, "strategy": "every_op"},
    }


def test_a_folder_of_jobs_tells_what_runs_in_it(running: RecipePlan) -> None:
    jobs = joblens.JobUtils(str(Path(running.job_dir).parent))
    assert [job["job_id"] for job in jobs.list_running_jobs()] == ["job"]
    assert jobs.load_event_logs()[0]["event_type"] == "job_start"
    assert monitor_job(running.job_dir)["status"] == "in_progress"


def test_a_log_that_grows_is_watched_to_its_end(running: RecipePlan, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "joblens", "snapshot", running.job_dir, "--watch", "--interval", "0.1s"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        seen = [json.loads(watching.stdout.readline())]
        (tmp_path / "running" / "hold").unlink()
        seen += [json.loads(line) for line in watching.stdout]
        assert watching.wait() == 0
    assert (seen[0]["overall_status"], seen[-1]["overall_status"]) == ("in_progress", "completed")
    events = [form["metadata"]["events_analyzed"] for form in seen]
    assert events == sorted(events)
    wait_for(lambda: not joblens.JobUtils(running.job_dir).snapshot().is_alive)
