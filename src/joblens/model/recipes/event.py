"""Facts that a recipe's job appends to its event log, one JSON object a line."""

import enum
from typing import Any

from msgspec import UNSET, Struct, UnsetType


class EventType(enum.StrEnum):
    JOB_START = "job_start"
    JOB_RESTART = "job_restart"  # the same job, gone on with
    JOB_COMPLETE = "job_complete"
    JOB_FAILED = "job_failed"
    JOB_STOPPED = "job_stopped"  # somebody ended it; it can be gone on with
    DAG_BUILD_START = "dag_build_start"
    DAG_BUILD_COMPLETE = "dag_build_complete"
    DAG_EXECUTION_PLAN_SAVED = "dag_execution_plan_saved"
    DAG_EXECUTION_PLAN_LOADED = "dag_execution_plan_loaded"
    PARTITION_CREATION_START = "partition_creation_start"
    PARTITION_CREATION_COMPLETE = "partition_creation_complete"
    PARTITION_START = "partition_start"
    PARTITION_RESUME = "partition_resume"  # from a checkpoint
    PARTITION_RETRY = "partition_retry"
    PARTITION_COMPLETE = "partition_complete"
    PARTITION_FAILED = "partition_failed"
    OP_START = "op_start"
    OP_COMPLETE = "op_complete"
    OP_FAILED = "op_failed"
    CHECKPOINT_SAVE = "checkpoint_save"
    CHECKPOINT_LOAD = "checkpoint_load"
    REPARTITION_START = "repartition_start"  # all partitions have come to a global operator
    REPARTITION_COMPLETE = "repartition_complete"
    ROWS_REJECTED = "rows_rejected"
    STEP_COMPLETE = "step_complete"  # work for no operator: cutting, reading again, putting results together
    EXPORT_START = "export_start"
    EXPORT_COMPLETE = "export_complete"


class Step(enum.StrEnum):
    """Work of a job that belongs to none of its operators, in the order in which it comes."""

    CUTTING = "cutting"  # of files that cannot be read from their middle
    READING = "reading"  # of rows, and again of what was kept of them
    EXPORTING = "exporting"
    COORDINATING = "coordinating"  # the process that leads the workers


class RecipeEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Fields that an event has nothing to say about are left out of its line."""

    event_type: str
    timestamp: float  # seconds since 1970
    message: str | UnsetType = UNSET
    event_id: str | UnsetType = UNSET
    job_id: str | UnsetType = UNSET
    partition_id: int | UnsetType = UNSET
    operation_name: str | UnsetType = UNSET
    operation_idx: int | UnsetType = UNSET  # absolute: the operator's place in the recipe
    status: str | UnsetType = UNSET
    duration: float | UnsetType = UNSET
    error_message: str | UnsetType = UNSET
    stack_trace: str | UnsetType = UNSET
    retry_count: int | UnsetType = UNSET
    checkpoint_path: str | UnsetType = UNSET
    op_args: dict[str, Any] | UnsetType = UNSET
    input_rows: int | UnsetType = UNSET
    output_rows: int | UnsetType = UNSET
    output_path: str | UnsetType = UNSET
    partition_meta: dict[str, Any] | UnsetType = UNSET
    config: dict[str, Any] | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    total_partitions: int | UnsetType = UNSET
    process_id: int | UnsetType = UNSET
    thread_id: int | UnsetType = UNSET
