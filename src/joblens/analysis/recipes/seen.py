"""An event of a recipe's job as a snapshot sees it: of a line of the log, only what matters is decoded, since
a log may have millions of them. Other systems' logs have the same words."""

from typing import Annotated

from msgspec import Meta, Struct

# What is out of bounds is no number of rows, no partition and no moment: the line was damaged.
Count = Annotated[int, Meta(ge=0, le=1 << 53)]
Moment = Annotated[float, Meta(ge=0, le=1e11)]


class UsedResources(Struct, frozen=True, gc=False):
    wall_seconds: Moment | None = None
    cpu_seconds: Moment | None = None
    memory_peak_bytes: Count | None = None
    read_bytes: Count | None = None
    written_bytes: Count | None = None


class SeenMetadata(Struct, frozen=True, gc=False):
    duration_seconds: Moment | None = None
    input_rows: Count | None = None
    output_rows: Count | None = None
    sample_count: Count | None = None
    checkpoint_strategy: str | None = None
    num_partitions: Count | None = None
    total_partitions: Count | None = None
    rejected_rows: Count | None = None
    rows: Count | None = None  # of a kept result
    rows_in: Count | None = None  # of the whole job
    rows_out: Count | None = None
    is_resuming: bool | None = None
    workers: Count | None = None
    output_path: str | None = None
    resources: UsedResources | None = None
    export: UsedResources | None = None  # of a partition
    step: str | None = None


class SeenConfig(Struct, frozen=True, gc=False):
    executor_type: str | None = None


class SeenEvent(Struct, frozen=True, gc=False):
    event_type: str
    timestamp: Moment
    partition_id: Count | None = None
    operation_name: str | None = None
    operation_idx: Count | None = None
    metadata: SeenMetadata | None = None
    duration: Moment | None = None
    input_rows: Count | None = None
    output_rows: Count | None = None
    total_partitions: Count | None = None
    process_id: Count | None = None
    status: str | None = None
    error_message: str | None = None
    output_path: str | None = None
    checkpoint_path: str | None = None
    retry_count: Count | None = None
    config: SeenConfig | None = None
