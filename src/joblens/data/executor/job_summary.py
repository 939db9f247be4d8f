"""Job summary files and job-level events of a recipe's job."""

import contextlib
import os
import time
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from joblens.data.base.job_folder import JobFolder
from joblens.data.base.messages import event
from joblens.data.executor.task_runner import FailedTask
from joblens.data.partition.checkpoints import FinishedPart
from joblens.files.atomic import write_atomically
from joblens.files.private import open_plain_file
from joblens.model.recipes.recipe import CheckpointStrategy, EventType, Partition, RecipeEvent, RecipePlan
from joblens.model.recipes.snapshot import StepProgress
from joblens.model.values.json_text import decode_json
from joblens.plan.recipes.job_folder import resumption_command

_MAPPING_VERSION = "1.0"


class JobEnd(Struct, frozen=True, kw_only=True):
    status: str  # completed, partial, failed, stopped
    error_message: str = ""
    export_paths: tuple[str, ...] = ()
    rows_out: int | None = None
    exit_code: int = 0
    can_resume: bool = True  # False: a resumed job would fail the same way


class JobSummary:
    """Writes job_summary.json at the start and the end of every run of the job."""

    def __init__(self, plan: RecipePlan, folder: JobFolder, started_at: float) -> None:
        self._plan = plan
        self._folder = folder
        self._fields: dict[str, Any] = self._initial_fields(started_at)

    def _initial_fields(self, started_at: float) -> dict[str, Any]:
        plan, folder, recipe = self._plan, self._folder, self._plan.recipe
        before = _read(folder.summary)
        self.steps_before = _steps_in(before)
        return {
            "job_id": plan.job_id,
            "start_time": before.get("start_time", started_at),
            "run_start_time": started_at,
            "runs": int(before.get("runs", 0)) + 1,
            "earlier_duration": _seconds_of_runs(before, folder.events),
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
            "steps": [msgspec.to_builtins(use) for use in self.steps_before],
        }

    def write_start(self) -> None:
        self._write(self._fields)

    def write_end(self, end: JobEnd, counts: dict[str, Any], steps: list[dict[str, Any]]) -> None:
        now = time.time()
        run_duration = now - self._fields["run_start_time"]
        self._write(
            {
                **self._fields,
                "status": end.status,
                "end_time": now,
                "duration": self._fields["earlier_duration"] + run_duration,
                "run_duration": run_duration,
                "error_message": end.error_message or None,
                "export_files": list(end.export_paths),
                **counts,
                "steps": steps,
                **({} if end.can_resume else {"resumption_command": None}),
                **({"stop_time": now, "stop_reason": end.error_message} if end.status == "stopped" else {}),
            }
        )

    def _write(self, fields: dict[str, Any]) -> None:
        write_atomically(
            self._folder.summary, msgspec.json.format(msgspec.json.encode(fields), indent=2) + b"\n"
        )


def _read(path: str) -> dict[str, Any]:
    try:
        with open_plain_file(path) as file:
            return decode_json(file.read(), dict[str, Any])  # type: ignore[no-any-return]
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}


def _seconds_of_runs(before: dict[str, Any], events: str) -> float:
    """Sums the durations of earlier runs; a killed run counts up to its last event."""
    if before.get("status") != "running":
        return float(before.get("duration") or 0.0)
    seconds = float(before.get("earlier_duration") or 0.0)
    with contextlib.suppress(OSError, KeyError):
        seconds += max(0.0, os.stat(events).st_mtime - float(before["run_start_time"]))
    return seconds


def _steps_in(before: dict[str, Any]) -> tuple[StepProgress, ...]:
    try:
        return msgspec.convert(before.get("steps", []), tuple[StepProgress, ...])
    except msgspec.ValidationError:
        return ()


def write_mapping(
    path: str,
    plan: RecipePlan,
    partitions: tuple[Partition, ...],
    finished: dict[int, FinishedPart],
    failed: dict[int, FailedTask],
    rejected_in_cutting: int = 0,
) -> None:
    """Writes the mapping from partitions to the dataset, with results. Row counts are of readable rows, known
    once a partition was read."""
    rows = [finished[each.id].source_rows if each.id in finished else each.rows for each in partitions]
    firsts = _first_rows(rows)
    document = {
        "original_dataset_path": list(plan.recipe.dataset_path),
        "original_dataset_size": firsts[-1],
        "original_dataset_bytes": plan.total_bytes,
        "partition_count": len(partitions),
        "partition_size": plan.recipe.partition.size,
        "target_bytes": plan.target_bytes,
        "mapping_version": _MAPPING_VERSION,
        "rejected_in_cutting": rejected_in_cutting,
        "partitions": [
            _partition_entry(each, (first, count), finished.get(each.id), failed.get(each.id))
            for each, first, count in zip(partitions, firsts, rows, strict=False)
        ],
    }
    write_atomically(path, msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")


def _first_rows(counts: Sequence[int | None]) -> list[int | None]:
    """Returns the index of each partition's first row, and the total."""
    firsts: list[int | None] = [0]
    for count in counts:
        before = firsts[-1]
        firsts.append(None if before is None or count is None else before + count)
    return firsts


def _partition_entry(
    partition: Partition,
    extent: tuple[int | None, int | None],
    done: FinishedPart | None,
    failed: FailedTask | None,
) -> dict[str, Any]:
    first, rows = extent
    life = done.life if done else None
    return {
        "partition_id": partition.id,
        "original_start_idx": first,
        "original_end_idx": None if first is None or rows is None else first + rows,
        "sample_count": rows,
        "file_size_bytes": partition.size_bytes,
        "checksum": (life.checksum or None) if life else None,
        "processing_status": "completed" if done else "failed" if failed else "pending",
        "processing_start_time": life.started_at if life else failed.started_at if failed else None,
        "processing_end_time": life.ended_at if life else failed.ended_at if failed else None,
        "error_message": failed.error_message if failed else None,
        "retry_count": life.retries if life else failed.tries - 1 if failed else 0,
        "output_rows": done.part.rows if done else None,
        "output_checksum": done.part.digest if done else None,
        "rejected_rows": done.rejects.count if done else None,
        "slices": [msgspec.to_builtins(each) for each in partition.slices],
    }


def job_start(plan: RecipePlan, *, is_resumed: bool) -> RecipeEvent:
    recipe = plan.recipe
    strategy = recipe.checkpoint.strategy
    partitions = None if plan.uncut else len(plan.partitions)
    return event(
        EventType.JOB_RESTART if is_resumed else EventType.JOB_START,
        message=f"job {plan.job_id} {'resumes' if is_resumed else 'starts'}",
        total_partitions=UNSET if partitions is None else partitions,
        config={
            "dataset_path": list(recipe.dataset_path),
            "work_dir": recipe.work_dir,
            "export_path": recipe.export_path,
            "executor_type": recipe.executor_type,
            "partition": msgspec.to_builtins(recipe.partition),
            "np": plan.workers,
        },
        metadata={
            "job_id": plan.job_id,
            "num_partitions": partitions,
            "total_partitions": partitions,
            "checkpoint_enabled": strategy is not CheckpointStrategy.DISABLED,
            "checkpoint_strategy": strategy.value,
            "is_resuming": is_resumed,
            "resume_requested": is_resumed,
            "workers": plan.workers,
        },
    )


def job_end(end: JobEnd, duration: float, plan: RecipePlan, counts: dict[str, Any]) -> RecipeEvent:
    kinds = {"completed": EventType.JOB_COMPLETE, "stopped": EventType.JOB_STOPPED}
    return event(
        kinds.get(end.status, EventType.JOB_FAILED),
        status=end.status,
        duration=round(duration, 6),
        error_message=end.error_message or UNSET,
        output_rows=UNSET if end.rows_out is None else end.rows_out,
        output_path=plan.recipe.export_path if end.export_paths else UNSET,
        metadata={
            "status": end.status,
            "duration_seconds": round(duration, 6),
            "completion_time": time.time(),
            "output_path": plan.recipe.export_path if end.export_paths else None,
            **counts,
        },
    )


def partition_failed(partition_id: int, failed: FailedTask) -> RecipeEvent:
    return event(
        EventType.PARTITION_FAILED,
        partition_id=partition_id,
        status="failed",
        error_message=failed.error_message,
        stack_trace=failed.stack_trace or UNSET,
        retry_count=failed.tries - 1,
        metadata={"failure_time": time.time(), "error_type": failed.error_type},
    )


def dag_build_start(kinds: Sequence[str]) -> RecipeEvent:
    return event(
        EventType.DAG_BUILD_START,
        metadata={
            "ast_node_count": len(kinds),
            "ast_depth": len(kinds),
            "ast_operation_types": sorted(set(kinds)),
        },
    )


def dag_built(document: dict[str, Any], duration: float, path: str) -> list[RecipeEvent]:
    nodes = document["nodes"]
    edges = sum(len(node["dependencies"]) for node in nodes.values())
    return [
        event(
            EventType.DAG_BUILD_COMPLETE,
            duration=round(duration, 6),
            metadata={
                "dag_node_count": len(nodes),
                "dag_edge_count": edges,
                "build_duration": round(duration, 6),
            },
        ),
        event(
            EventType.DAG_EXECUTION_PLAN_SAVED,
            output_path=path,
            metadata={"plan_path": path, "node_count": len(nodes)},
        ),
    ]
