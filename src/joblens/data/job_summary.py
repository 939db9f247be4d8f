"""The files of a job's folder that say in short what it was and how it ended."""

import time
from typing import Any

import msgspec
from msgspec import Struct

from joblens.data.checkpoints import FinishedPart
from joblens.data.job_folder import JobFolder, write_whole
from joblens.data.task_runner import GaveUp
from joblens.model.recipe import Partition, RecipePlan
from joblens.plan.recipe_paths import resumption_command

_MAPPING_VERSION = "1.0"


class JobEnd(Struct, frozen=True, kw_only=True):
    status: str  # completed, partial, failed, stopped
    error_message: str = ""
    export_paths: tuple[str, ...] = ()
    rows_out: int | None = None
    exit_code: int = 0


class JobSummary:
    """job_summary.json, at the start and at the end of every run of the job."""

    def __init__(self, plan: RecipePlan, folder: JobFolder, started_at: float) -> None:
        self._plan = plan
        self._folder = folder
        self._fields: dict[str, Any] = self._beginning(started_at)

    def _beginning(self, started_at: float) -> dict[str, Any]:
        plan, folder, recipe = self._plan, self._folder, self._plan.recipe
        before = _read(folder.summary)
        return {
            "job_id": plan.job_id,
            "start_time": before.get("start_time", started_at),
            "run_start_time": started_at,
            "runs": int(before.get("runs", 0)) + 1,
            "work_dir": recipe.work_dir,
            "job_dir": folder.path,
            "config_file": [plan.recipe_path] if plan.recipe_path else [],
            "backed_up_config_path": folder.recipe_copy(plan.recipe_path),
            "executor_type": recipe.executor_type,
            "status": "running",
            "resumption_command": resumption_command(plan),
            "event_log_file": folder.events,
            "event_log_dir": folder.logs,
            "checkpoint_dir": folder.checkpoints,
            "metadata_dir": folder.metadata,
            "dataset_path": list(recipe.dataset_path),
            "export_path": recipe.export_path,
        }

    def write_start(self) -> None:
        self._write(self._fields)

    def write_end(self, end: JobEnd, counts: dict[str, Any]) -> None:
        now = time.time()
        self._write(
            {
                **self._fields,
                "status": end.status,
                "end_time": now,
                "duration": now - self._fields["start_time"],
                "run_duration": now - self._fields["run_start_time"],
                "error_message": end.error_message or None,
                "export_files": list(end.export_paths),
                **counts,
                **({"stop_time": now, "stop_reason": end.error_message} if end.status == "stopped" else {}),
            }
        )

    def _write(self, fields: dict[str, Any]) -> None:
        write_whole(self._folder.summary, msgspec.json.format(msgspec.json.encode(fields), indent=2) + b"\n")


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}


def write_mapping(
    path: str,
    plan: RecipePlan,
    partitions: tuple[Partition, ...],
    finished: dict[int, FinishedPart],
    failed: dict[int, GaveUp],
    rejected_in_cutting: int = 0,
) -> None:
    """Which partition is which part of the dataset, and what came of it."""
    sizes = [part.rows for part in partitions]
    document = {
        "original_dataset_path": list(plan.recipe.dataset_path),
        "original_dataset_size": None if None in sizes else sum(size or 0 for size in sizes),
        "original_dataset_bytes": plan.total_bytes,
        "partition_count": len(partitions),
        "partition_size": plan.recipe.partition.size,
        "target_bytes": plan.target_bytes,
        "mapping_version": _MAPPING_VERSION,
        "rejected_in_cutting": rejected_in_cutting,
        "partitions": [_mapped(each, finished.get(each.id), failed.get(each.id)) for each in partitions],
    }
    write_whole(path, msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")


def _mapped(partition: Partition, done: FinishedPart | None, why: GaveUp | None) -> dict[str, Any]:
    first, rows = partition.first_row, partition.rows
    if done is not None:
        rows = done.source_rows
    return {
        "partition_id": partition.id,
        "original_start_idx": first,
        "original_end_idx": None if first is None or partition.rows is None else first + partition.rows,
        "sample_count": rows,
        "file_size_bytes": partition.size_bytes,
        "checksum": done.part.digest if done else None,
        "processing_status": "completed" if done else "failed" if why else "pending",
        "error_message": why.error_message if why else None,
        "retry_count": why.tries - 1 if why else 0,
        "output_rows": done.part.rows if done else None,
        "rejected_rows": done.rejects.count if done else None,
        "slices": [msgspec.to_builtins(each) for each in partition.slices],
    }
