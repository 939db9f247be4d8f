"""An event of a recipe's job as a snapshot sees it: of a line of the log, only what matters is decoded, since
a log may have millions of them. Other systems' logs have the same words."""

from msgspec import Struct


class UsedResources(Struct, frozen=True, gc=False):
    cpu_seconds: float | None = None
    memory_peak_bytes: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None


class SeenMetadata(Struct, frozen=True, gc=False):
    duration_seconds: float | None = None
    input_rows: int | None = None
    output_rows: int | None = None
    sample_count: int | None = None
    checkpoint_strategy: str | None = None
    num_partitions: int | None = None
    total_partitions: int | None = None
    rejected_rows: int | None = None
    is_resuming: bool | None = None
    output_path: str | None = None
    resources: UsedResources | None = None


class SeenConfig(Struct, frozen=True, gc=False):
    executor_type: str | None = None


class SeenEvent(Struct, frozen=True, gc=False):
    event_type: str
    timestamp: float
    partition_id: int | None = None
    operation_name: str | None = None
    operation_idx: int | None = None
    metadata: SeenMetadata | None = None
    duration: float | None = None
    input_rows: int | None = None
    output_rows: int | None = None
    total_partitions: int | None = None
    process_id: int | None = None
    status: str | None = None
    error_message: str | None = None
    output_path: str | None = None
    retry_count: int | None = None
    config: SeenConfig | None = None
