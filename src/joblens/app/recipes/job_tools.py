"""JobUtils: jobs of recipes by their directories; list, inspect and stop them."""

import os
import select
import signal
import time
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from joblens.app.recipes.job_directory import (
    JobDirectory,
    JobProcess,
    is_job_folder,
    live_process,
    process_of_executor,
    read_json_object,
    readable_or_input_error,
    summary_in,
)
from joblens.app.recipes.snapshots import LiveSnapshot
from joblens.data.base.job_folder import JobFolder
from joblens.files.private import open_plain_file
from joblens.files.processes import process_start_ticks
from joblens.model.errors import InputError
from joblens.model.recipes.snapshot import JobSnapshot, ProcessingStatus
from joblens.model.values.json_text import decode_json


def status_text(snapshot: JobSnapshot) -> str:
    is_running = snapshot.overall_status is ProcessingStatus.IN_PROGRESS
    return "running" if is_running else snapshot.overall_status.value


def may_run(job_dir: str) -> bool:
    """Returns False for certain if the lock of the job is free. Without a lock its events have to be
    read."""
    process = process_of_executor(JobFolder(job_dir))
    return process is None or process.is_alive is not False


def listed_job(job_dir: str) -> dict[str, Any]:
    """For a complete job, its summary is enough; for any other the events have to be read. An unreadable
    job is listed as such."""
    try:
        with readable_or_input_error():
            return _of_summary(job_dir, summary_in(job_dir)) or _of_snapshot(job_dir)
    except InputError:
        return _listed(job_dir, status="unreadable")


def _of_summary(job_dir: str, summary: dict[str, Any]) -> dict[str, Any] | None:
    times = [summary.get(key) for key in ("start_time", "duration")]
    is_complete = summary.get("status") == "completed" and all(isinstance(one, int | float) for one in times)
    if not is_complete or process_of_executor(JobFolder(job_dir)) is None or may_run(job_dir):
        return None  # another system's, or it is being resumed
    return _listed(job_dir, status="completed", start_time=times[0], duration=times[1], progress=100.0)


def _of_snapshot(job_dir: str) -> dict[str, Any]:
    snapshot = LiveSnapshot(job_dir).refresh()
    return _listed(
        job_dir,
        status=status_text(snapshot),
        start_time=snapshot.job_start_time,
        duration=snapshot.total_duration,
        progress=100 * snapshot.overall_fraction,
        processes=1 if snapshot.is_alive else 0,
    )


def _listed(
    job_dir: str,
    *,
    status: str,
    start_time: float | None = None,
    duration: float | None = None,
    progress: float | None = None,
    processes: int = 0,
) -> dict[str, Any]:
    return {
        "job_id": os.path.basename(os.path.abspath(job_dir)),
        "status": status,
        "start_time": start_time,
        "duration": duration,
        "progress_percentage": progress,
        "processes": processes,
        "work_dir": job_dir,
    }


_AFTER_KILL_S = 10.0


class Stopped(Struct, frozen=True, kw_only=True):
    success: bool  # no process of the job is running
    process_id: int | None = None
    was_running: bool = False
    was_killed: bool = False
    reason: str = ""


def stop_process(process: JobProcess, *, timeout_s: float, force: bool) -> Stopped:
    pid = process.process_id
    if process.is_alive is None:
        return Stopped(success=False, process_id=pid, reason="it is unknown whether the job is running")
    if not process.is_alive or pid is None:
        return Stopped(success=True, process_id=pid, reason="the job is not running")
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return Stopped(success=True, process_id=pid, reason="the job has just ended")
    try:
        # The descriptor refers to one process permanently: checking it once is enough.
        if process_start_ticks(pid) != process.start_ticks:
            return Stopped(success=True, process_id=pid, reason="the job has just ended")
        return _end(descriptor, pid, timeout_s, force=force)
    except PermissionError:
        return Stopped(success=False, process_id=pid, was_running=True, reason="it belongs to another user")
    finally:
        os.close(descriptor)


def _end(descriptor: int, pid: int, timeout_s: float, *, force: bool) -> Stopped:
    signal.pidfd_send_signal(descriptor, signal.SIGTERM)
    if _has_ended(descriptor, timeout_s):
        return Stopped(success=True, process_id=pid, was_running=True)
    if not force:
        reason = f"it did not end within {timeout_s:g}s"
        return Stopped(success=False, process_id=pid, was_running=True, reason=reason)
    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    has_ended = _has_ended(descriptor, _AFTER_KILL_S)
    return Stopped(success=has_ended, process_id=pid, was_running=True, was_killed=True)


def _has_ended(descriptor: int, timeout_s: float) -> bool:
    return bool(select.select([descriptor], [], [], timeout_s)[0])


class JobUtils:
    """`JobUtils("outputs")` for the jobs in a folder, `JobUtils("outputs/JOB")` for one of them,
    `JobUtils("JOB", base_dir="outputs")` the same, `JobUtils("JOB", work_dir="outputs/JOB")` too. For a
    folder of jobs, methods about one job use the one that wrote last; to stop one, name it."""

    def __init__(self, job: str, work_dir: str | None = None, base_dir: str | None = None) -> None:
        path = str(job)
        if work_dir is not None:
            path = _folder_of(path, str(work_dir))
        elif base_dir is not None:
            path = os.path.join(str(base_dir), path)
        if not os.path.isdir(path):
            raise InputError(
                f"there is no directory {path}", hint="give a job directory, or a directory of jobs"
            )
        self._job_dir = path if is_job_folder(path) else None
        if self._job_dir is None and (work_dir is not None or base_dir is not None):
            raise InputError(f"{path} is not a job directory: no event log, no plan, no summary")
        self.base_dir = os.path.dirname(os.path.abspath(path)) if self._job_dir else path

    @property
    def work_dir(self) -> str:
        """The job's folder."""
        if self._job_dir is not None:
            return self._job_dir
        folders = self._job_folders()
        if not folders:
            raise InputError(f"no jobs in {self.base_dir}")
        return max(folders, key=_last_change)

    @property
    def job_id(self) -> str:
        return os.path.basename(os.path.abspath(self.work_dir))

    # All jobs of a folder

    def _job_folders(self) -> list[str]:
        with readable_or_input_error(), os.scandir(self.base_dir) as entries:
            return [entry.path for entry in entries if entry.is_dir() and is_job_folder(entry.path)]

    def list_jobs(self) -> list[dict[str, Any]]:
        """Returns every job, the last started first."""
        return _in_order(listed_job(path) for path in self._job_folders())

    def list_running_jobs(self) -> list[dict[str, Any]]:
        """Returns jobs whose process is alive."""
        jobs = (listed_job(path) for path in self._job_folders() if may_run(path))
        return _in_order(job for job in jobs if job["status"] == "running")

    def job(self, job_id: str) -> "JobUtils":
        """Returns one of them."""
        return JobUtils(job_id, base_dir=self.base_dir)

    # One job

    def load_job_summary(self) -> dict[str, Any] | None:
        with readable_or_input_error():
            return JobDirectory(self.work_dir).read_summary() or None

    def load_dataset_mapping(self) -> dict[str, Any]:
        with readable_or_input_error():
            return read_json_object(JobDirectory(self.work_dir).folder.dataset_mapping)

    def load_event_logs(self) -> list[dict[str, Any]]:
        """Returns all events in order, over all runs of the job; skips invalid lines."""
        events = []
        for path in JobDirectory(self.work_dir).event_files():
            with readable_or_input_error(), open_plain_file(path) as file:
                for line in file:
                    try:
                        event = decode_json(line)
                    except (msgspec.MsgspecError, UnicodeDecodeError):
                        continue
                    if isinstance(event, dict):
                        events.append(event)
        return events

    def extract_process_thread_ids(self) -> dict[str, set[int]]:
        events = self.load_event_logs()
        return {
            "process_ids": {
                event["process_id"] for event in events if isinstance(event.get("process_id"), int)
            },
            "thread_ids": {event["thread_id"] for event in events if isinstance(event.get("thread_id"), int)},
        }

    def find_processes_by_ids(self, process_ids: set[int]) -> list[JobProcess]:
        """Returns processes that still are those that wrote the events: a pid may be reused."""
        last: dict[int, float] = {}
        for event in self.load_event_logs():
            pid, at = event.get("process_id"), event.get("timestamp")
            if isinstance(pid, int) and pid in process_ids and isinstance(at, int | float):
                last[pid] = max(float(at), last.get(pid, 0.0))
        found = [live_process(pid, at) for pid, at in sorted(last.items())]
        return [process for process in found if process.is_alive]

    def find_threads_by_ids(self, thread_ids: set[int]) -> list[int]:
        """Returns running threads of the job, if events have thread ids of the kernel."""
        processes = self.find_processes_by_ids(self.extract_process_thread_ids()["process_ids"])
        running: set[int] = set()
        for process in processes:
            try:
                running.update(int(name) for name in os.listdir(f"/proc/{process.process_id}/task"))
            except FileNotFoundError:
                continue  # it has just ended
        return sorted(running & thread_ids)

    def get_partition_status(self) -> dict[int, dict[str, Any]]:
        snapshot = self.snapshot()
        return {number: msgspec.to_builtins(one) for number, one in snapshot.partition_statuses.items()}

    def calculate_overall_progress(self) -> dict[str, Any]:
        snapshot = self.snapshot()
        counts = [one for one in snapshot.partition_statuses.values() if one.sample_count is not None]
        completed = [one for one in counts if one.status is ProcessingStatus.COMPLETED]
        return {
            "total_partitions": snapshot.total_partitions,
            "completed_partitions": snapshot.completed_partitions,
            "processing_partitions": snapshot.in_progress_partitions,
            "failed_partitions": snapshot.failed_partitions,
            "progress_percentage": 100 * snapshot.overall_fraction,
            "total_samples": sum(one.sample_count or 0 for one in counts),
            "processed_samples": sum(one.sample_count or 0 for one in completed),
            "estimated_remaining_seconds": snapshot.eta_seconds,
            "job_status": status_text(snapshot),
        }

    def get_operation_pipeline(self) -> list[dict[str, Any]]:
        """Returns the operators of the recipe, in order, each with its parameters."""
        return JobDirectory(self.work_dir).operator_calls()

    def snapshot(self) -> JobSnapshot:
        return LiveSnapshot(self.work_dir).refresh()

    def monitor(self, interval: float = 1.0) -> Iterator[JobSnapshot]:
        """Yields snapshots until the job has ended, including the last."""
        live = LiveSnapshot(self.work_dir)
        while True:
            snapshot = live.refresh()
            yield snapshot
            if live.is_over(snapshot):
                return
            time.sleep(interval)

    def stop(self, *, timeout: float = 30.0, force: bool = False) -> Stopped:
        """Stops the job so that it can be resumed. `force`: kills it if it has not ended after `timeout`
        seconds. A process that only has the same pid is not touched. Raises InputError for a folder of
        several jobs."""
        if self._job_dir is None:
            running = ", ".join(job["job_id"] for job in self.list_running_jobs())
            hint = f"name one: {running}" if running else "none of its jobs is running"
            raise InputError(f"{self.base_dir} is a directory of jobs, not a job", hint=hint)
        return stop_process(LiveSnapshot(self.work_dir).process(), timeout_s=timeout, force=force)


def _folder_of(job_id: str, work_dir: str) -> str:
    """Returns the job's own folder, or that of its name in a folder of jobs; never that of another job."""
    if not is_job_folder(work_dir):
        return os.path.join(work_dir, job_id)
    name, recorded = os.path.basename(os.path.abspath(work_dir)), summary_in(work_dir).get("job_id")
    if os.path.basename(os.path.normpath(job_id)) not in (name, recorded):
        raise InputError(f"{work_dir} is not the directory of job {job_id}, but of {recorded or name}")
    return work_dir


def _in_order(jobs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(jobs, key=lambda job: job["start_time"] or 0.0, reverse=True)


def _last_change(folder: str) -> float:
    return max((os.stat(path).st_mtime for path in JobDirectory(folder).event_files()), default=0.0)
