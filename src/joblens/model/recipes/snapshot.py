"""State of a recipe's job at one moment, from its event log and its folder."""

import enum
from collections.abc import Mapping

from msgspec import Struct

from joblens.model.jobs.details import RejectReason

_NEARLY_ALL = 0.99


class ProcessingStatus(enum.StrEnum):
    """Status of an operation, a partition or a job; not every state applies to each of them."""

    NOT_STARTED = "not_started"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    CHECKPOINTED = "checkpointed"  # a completed operation with a saved result
    INTERRUPTED = "interrupted"  # an operation or partition that was in progress when its job ended
    PARTIAL = "partial"  # the job ended without some of its partitions
    STOPPED = "stopped"  # stopped by a user
    KILLED = "killed"  # the job's process ended without a final status


class OperationStatus(Struct, frozen=True, kw_only=True):
    """One operator on one partition, or a global operator on all of them."""

    operation_name: str
    operation_idx: int
    status: ProcessingStatus
    start_time: float | None = None
    end_time: float | None = None
    duration: float | None = None
    input_rows: int | None = None
    output_rows: int | None = None
    checkpoint_time: float | None = None
    error_message: str | None = None
    progress_percentage: float = 0.0  # lower bound: the progress of a running operation is unknown


class PartitionStatus(Struct, frozen=True, kw_only=True):
    partition_id: int
    status: ProcessingStatus
    sample_count: int | None = None
    creation_start_time: float | None = None
    creation_end_time: float | None = None
    processing_start_time: float | None = None
    processing_end_time: float | None = None
    current_operation: str | None = None
    completed_operations: tuple[str, ...] = ()  # including those with a checkpoint
    failed_operations: tuple[str, ...] = ()
    checkpointed_operations: tuple[str, ...] = ()
    error_message: str | None = None
    planned_operations: int = 0  # including global ones
    completed_together: int = 0  # completed operations on all partitions
    retry_count: int = 0
    is_waiting: bool = False  # for the others, before an operator on all of them

    @property
    def fraction(self) -> float:
        """Returns the share of its operations; below 1 until results are written."""
        if self.status is ProcessingStatus.COMPLETED:
            return 1.0
        done, planned = len(self.completed_operations) + self.completed_together, self.planned_operations
        return min(done / planned, _NEARLY_ALL) if planned else 0.0


class OperatorProgress(Struct, frozen=True, kw_only=True):
    """One operator over all partitions. Rows and times are of partitions that have passed it;
    resources of failed attempts count too.
    """

    operation_idx: int
    operation_name: str
    planned: int  # partitions; 1 for a global operator
    completed: int = 0
    in_progress: int = 0
    failed: int = 0
    checkpointed: int = 0
    input_rows: int | None = None
    output_rows: int | None = None
    rejected_rows: int = 0
    duration_seconds: float = 0.0
    cpu_seconds: float | None = None
    memory_peak_bytes: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None
    is_global: bool = False

    @property
    def keep_rate(self) -> float | None:
        if not self.input_rows or self.output_rows is None:
            return None
        return self.output_rows / self.input_rows

    @property
    def rows_per_second(self) -> float | None:
        """Returns the throughput of one worker."""
        if self.input_rows is None or self.duration_seconds <= 0:
            return None
        return self.input_rows / self.duration_seconds


class StepProgress(Struct, frozen=True, kw_only=True):
    """Resources outside operators, over all partitions."""

    name: str
    wall_seconds: float | None = None  # None: in parallel with everything else
    cpu_seconds: float | None = None
    memory_peak_bytes: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None


class JobSnapshot(Struct, frozen=True, kw_only=True):
    job_id: str
    overall_status: ProcessingStatus
    job_start_time: float | None = None
    job_end_time: float | None = None
    total_duration: float | None = None  # of all runs of the job, without the time between them
    total_partitions: int = 0
    completed_partitions: int = 0
    failed_partitions: int = 0
    in_progress_partitions: int = 0  # including waiting ones
    waiting_partitions: int = 0  # for the others, before an operator on all of them
    total_operations: int = 0  # planned
    completed_operations: int = 0  # including those with a checkpoint
    failed_operations: int = 0
    checkpointed_operations: int = 0
    partition_statuses: Mapping[int, PartitionStatus] = {}
    operation_statuses: Mapping[str, OperationStatus] = {}
    operators: tuple[OperatorProgress, ...] = ()
    steps: tuple[StepProgress, ...] = ()
    checkpoint_strategy: str | None = None
    last_checkpoint_time: float | None = None
    resumable: bool = False
    error_message: str | None = None
    taken_at: float = 0.0
    last_event_time: float | None = None
    rows_in: int | None = None  # of the whole job; while it runs, read by the first operator
    rows_out: int | None = None  # exported; while it runs, passed by the last operator
    runs: int = 0  # how often the job was started or resumed
    retries: int = 0
    rejected_rows: int = 0
    rejects: tuple[RejectReason, ...] = ()  # the same rows by reason, once the job has ended
    events_analyzed: int = 0
    malformed_lines: int = 0
    is_exporting: bool = False
    export_path: str | None = None
    eta_seconds: float | None = None
    is_alive: bool | None = None  # None: unknown, or the job has a final status
    process_id: int | None = None

    @property
    def operation_fraction(self) -> float:
        return self.completed_operations / self.total_operations if self.total_operations else 0.0

    @property
    def partition_fraction(self) -> float:
        return self.completed_partitions / self.total_partitions if self.total_partitions else 0.0

    @property
    def overall_fraction(self) -> float:
        """Returns the share of the planned work;
        below 1 until the job is complete, because results must be written.
        """
        if self.overall_status is ProcessingStatus.COMPLETED:
            return 1.0
        if self.overall_status is ProcessingStatus.NOT_STARTED:
            return 0.0
        done = self.operation_fraction if self.total_operations else self.partition_fraction
        return min(done, _NEARLY_ALL)
