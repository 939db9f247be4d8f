"""`JobUtils`: recipes' jobs by their folders, looked at and stopped."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import joblens
from joblens.data.base.job_folder import JobFolder
from joblens.model.errors import InputError

_STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
)
_ORDINARY = "import time; print(flush=True); time.sleep(600)"


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def start(processes: list[subprocess.Popen[str]], program: str) -> int:
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    processes.append(process)
    assert process.stdout is not None
    process.stdout.readline()  # it is ready
    return process.pid


def make_job(folder: Path, pid: int, *, at: float | None = None) -> Path:
    folder.mkdir(parents=True)
    at = time.time() if at is None else at
    ids = {"process_id": pid, "thread_id": pid}
    events: list[dict[str, Any]] = [
        {"event_type": "job_start", "timestamp": at, "total_partitions": 2, **ids},
        {"event_type": "partition_start", "timestamp": at, "partition_id": 0, **ids},
        {"event_type": "partition_complete", "timestamp": at, "partition_id": 0, **ids},
        {"event_type": "partition_start", "timestamp": at, "partition_id": 1, **ids},
    ]
    lines = [json.dumps(event) for event in events]
    (folder / "events.jsonl").write_text("\n".join(["no event", *lines]) + "\n")
    (folder / "recipe.yaml").write_text(
        "process:\n  - clean_links_mapper:\n  - text_length_filter: {min_len: 3}\n"
    )
    return folder


@pytest.fixture
def running(tmp_path: Path, processes: list[subprocess.Popen[str]]) -> Path:
    return make_job(tmp_path / "jobs" / "running", start(processes, _ORDINARY))


def test_only_jobs_whose_process_lives_are_listed_as_running(running: Path) -> None:
    make_job(running.parent / "killed", pid=os.getpid(), at=1_000.0)
    jobs = joblens.JobUtils(str(running.parent))
    assert [job["job_id"] for job in jobs.list_running_jobs()] == ["running"]
    assert {job["job_id"]: job["status"] for job in jobs.list_jobs()} == {
        "running": "running",
        "killed": "killed",
    }


@pytest.mark.parametrize("form", ["folder", "base", "work_dir"])
def test_a_job_can_be_named_in_three_ways(running: Path, form: str) -> None:
    arguments: dict[str, Any] = {
        "folder": {"job": str(running)},
        "base": {"job": "running", "base_dir": str(running.parent)},
        "work_dir": {"job": "running", "work_dir": str(running)},
    }[form]
    jobs = joblens.JobUtils(**arguments)
    assert jobs.job_id == "running"
    assert len(jobs.load_event_logs()) == 4


def test_a_folder_of_jobs_answers_for_the_one_that_wrote_last(running: Path) -> None:
    old = make_job(running.parent / "old", pid=os.getpid(), at=1_000.0)
    os.utime(old / "events.jsonl", (1_000.0, 1_000.0))
    assert joblens.JobUtils(str(running.parent)).job_id == "running"


def test_a_job_is_looked_for_by_its_name_in_a_folder_of_jobs(running: Path) -> None:
    make_job(running.parent / "another", pid=os.getpid())
    assert joblens.JobUtils("running", work_dir=str(running.parent)).job_id == "running"
    assert joblens.JobUtils(str(running.parent)).job("running").job_id == "running"


def test_a_folder_of_another_job_is_refused(running: Path) -> None:
    with pytest.raises(InputError, match="not the directory of job k2, but of running"):
        joblens.JobUtils("k2", work_dir=str(running))
    with pytest.raises(InputError, match="there is no directory"):
        joblens.JobUtils("k2", work_dir=str(running.parent))


def test_of_a_folder_of_jobs_none_is_stopped(running: Path, processes: list[subprocess.Popen[str]]) -> None:
    with pytest.raises(InputError, match="directory of jobs") as refused:
        joblens.JobUtils(str(running.parent)).stop()
    assert refused.value.hint == "name one: running"
    assert processes[0].poll() is None


def complete_job(folder: Path) -> Path:
    """As joblens leaves it, with a log that nobody has to read."""
    (folder / "metadata").mkdir(parents=True)
    (folder / "metadata" / "lock").touch()
    (folder / "events.jsonl").mkdir()
    summary = {"job_id": folder.name, "status": "completed", "start_time": 5.0, "duration": 2.0}
    (folder / "job_summary.json").write_text(json.dumps(summary))
    return folder


def test_a_complete_job_is_listed_without_reading_its_events(running: Path) -> None:
    folder = complete_job(running.parent / "complete")
    assert Path(JobFolder(str(folder)).lock).exists()
    listed = {job["job_id"]: job for job in joblens.JobUtils(str(running.parent)).list_jobs()}
    assert listed["complete"]["status"] == "completed"
    assert (listed["complete"]["start_time"], listed["complete"]["duration"]) == (5.0, 2.0)
    assert listed["complete"]["progress_percentage"] == 100.0


def test_a_job_that_cannot_be_read_keeps_no_other_from_being_listed(running: Path) -> None:
    (running.parent / "odd" / "events.jsonl").mkdir(parents=True)
    listed = {job["job_id"]: job["status"] for job in joblens.JobUtils(str(running.parent)).list_jobs()}
    assert listed == {"running": "running", "odd": "unreadable"}


def test_a_folder_without_jobs_has_nothing_to_tell(tmp_path: Path) -> None:
    jobs = joblens.JobUtils(str(tmp_path))
    assert jobs.list_jobs() == []
    with pytest.raises(InputError, match="no jobs"):
        jobs.load_event_logs()


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no directory"):
        joblens.JobUtils("job", base_dir=str(tmp_path))


def test_progress_partitions_and_operators_are_reported(running: Path) -> None:
    jobs = joblens.JobUtils(str(running))
    progress = jobs.calculate_overall_progress()
    assert (progress["completed_partitions"], progress["total_partitions"]) == (1, 2)
    assert (progress["processing_partitions"], progress["job_status"]) == (1, "running")
    assert {number: one["status"] for number, one in jobs.get_partition_status().items()} == {
        0: "completed",
        1: "in_progress",
    }
    assert jobs.get_operation_pipeline() == [
        {"name": "clean_links_mapper", "config": {}},
        {"name": "text_length_filter", "config": {"min_len": 3}},
    ]
    assert jobs.load_job_summary() is None
    assert jobs.load_dataset_mapping() == {}


def test_processes_are_found_unless_another_has_their_number(
    running: Path, processes: list[subprocess.Popen[str]]
) -> None:
    jobs = joblens.JobUtils(str(running))
    ids = jobs.extract_process_thread_ids()
    assert ids == {"process_ids": {processes[0].pid}, "thread_ids": {processes[0].pid}}
    assert [one.process_id for one in jobs.find_processes_by_ids(ids["process_ids"])] == [processes[0].pid]
    assert jobs.find_threads_by_ids(ids["thread_ids"]) == [processes[0].pid]
    reused = joblens.JobUtils(str(make_job(running.parent / "reused", processes[0].pid, at=1_000.0)))
    assert reused.find_processes_by_ids(ids["process_ids"]) == []


def test_a_job_is_stopped(running: Path, processes: list[subprocess.Popen[str]]) -> None:
    stopped = joblens.JobUtils(str(running)).stop()
    assert (stopped.success, stopped.was_running, stopped.was_killed) == (True, True, False)
    assert processes[0].wait() == -15


def test_a_job_that_does_not_end_is_killed_only_when_reported(
    tmp_path: Path, processes: list[subprocess.Popen[str]]
) -> None:
    jobs = joblens.JobUtils(str(make_job(tmp_path / "job", start(processes, _STUBBORN))))
    asked = jobs.stop(timeout=0.1)
    assert (asked.success, asked.reason) == (False, "it did not end within 0.1s")
    assert processes[0].poll() is None
    forced = jobs.stop(timeout=0.1, force=True)
    assert (forced.success, forced.was_killed) == (True, True)
    assert processes[0].wait() == -9


def test_a_process_that_only_has_the_number_is_left_alone(
    tmp_path: Path, processes: list[subprocess.Popen[str]]
) -> None:
    pid = start(processes, _ORDINARY)
    stopped = joblens.JobUtils(str(make_job(tmp_path / "job", pid, at=1_000.0))).stop(force=True, timeout=0.1)
    assert (stopped.success, stopped.was_running) == (True, False)
    assert processes[0].poll() is None


def test_a_job_is_monitored_until_it_ends(running: Path, processes: list[subprocess.Popen[str]]) -> None:
    seen = []
    for snapshot in joblens.JobUtils(str(running)).monitor(interval=0.01):
        seen.append(snapshot.overall_status.value)
        if len(seen) == 1:
            processes[0].kill()
            processes[0].wait()
    assert seen[0] == "in_progress"
    assert seen[-1] == "killed"
