"""Events of the job as a whole."""

import time
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from joblens.data.base.worker_events import event
from joblens.data.executor.job_summary import JobEnd
from joblens.data.executor.task_runner import GaveUp
from joblens.model.recipes.event import EventType, RecipeEvent
from joblens.model.recipes.recipe import CheckpointStrategy, RecipePlan


def job_start(plan: RecipePlan, *, is_resumed: bool) -> RecipeEvent:
    recipe = plan.recipe
    strategy = recipe.checkpoint.strategy
    partitions = None if plan.uncut else len(plan.partitions)
    return event(
        EventType.JOB_RESTART if is_resumed else EventType.JOB_START,
        message=f"job {plan.job_id} {'is gone on with' if is_resumed else 'starts'}",
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


def partition_failed(partition_id: int, why: GaveUp) -> RecipeEvent:
    return event(
        EventType.PARTITION_FAILED,
        partition_id=partition_id,
        status="failed",
        error_message=why.error_message,
        stack_trace=why.stack_trace or UNSET,
        retry_count=why.tries - 1,
        metadata={"failure_time": time.time(), "error_type": why.error_type},
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
