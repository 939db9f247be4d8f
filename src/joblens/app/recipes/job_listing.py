"""Many jobs in a few words each, without reading more of their folders than that takes."""

import os
from typing import Any

from joblens.app.recipes.job_directory import summary_in, told_if_unreadable
from joblens.app.recipes.job_process import process_of_executor
from joblens.app.recipes.snapshots import LiveSnapshot
from joblens.data.base.job_folder import JobFolder
from joblens.model.errors import InputError
from joblens.model.recipes.snapshot import JobSnapshot, ProcessingStatus


def status_word(snapshot: JobSnapshot) -> str:
    is_running = snapshot.overall_status is ProcessingStatus.IN_PROGRESS
    return "running" if is_running else snapshot.overall_status.value


def may_run(job_dir: str) -> bool:
    """No, for certain, where nobody holds the lock of the job. Without a lock its events have to be read."""
    process = process_of_executor(JobFolder(job_dir))
    return process is None or process.is_alive is not False


def listed_job(job_dir: str) -> dict[str, Any]:
    """Of a job that is complete its summary tells everything; of any other the events have to be read. One
    that may not be read is told as such, and does not keep the others from being listed."""
    try:
        with told_if_unreadable():
            return _of_summary(job_dir, summary_in(job_dir)) or _of_snapshot(job_dir)
    except InputError:
        return _listed(job_dir, status="unreadable")


def _of_summary(job_dir: str, summary: dict[str, Any]) -> dict[str, Any] | None:
    times = [summary.get(key) for key in ("start_time", "duration")]
    is_told = summary.get("status") == "completed" and all(isinstance(one, int | float) for one in times)
    if not is_told or process_of_executor(JobFolder(job_dir)) is None or may_run(job_dir):
        return None  # another system's, or it is being gone on with
    return _listed(job_dir, status="completed", start_time=times[0], duration=times[1], progress=100.0)


def _of_snapshot(job_dir: str) -> dict[str, Any]:
    snapshot = LiveSnapshot(job_dir).refresh()
    return _listed(
        job_dir,
        status=status_word(snapshot),
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
