"""Recipe: operators over a dataset, its plan and resources, and the events of its job."""

import enum
from typing import Any

from msgspec import UNSET, Struct, UnsetType

DEFAULT_TARGET_MB = 64  # default size of a partition
DEFAULT_NP = 4


class Executor(enum.StrEnum):
    LOCAL = "local"  # worker processes on this machine
    RAY = "ray"


class CheckpointStrategy(enum.StrEnum):
    EVERY_OP = "every_op"
    EVERY_PARTITION = "every_partition"  # once, after the last operator before a global one
    EVERY_N_OPS = "every_n_ops"
    MANUAL = "manual"  # after the named operators
    DISABLED = "disabled"


class PartitionMode(enum.StrEnum):
    AUTO = "auto"
    MANUAL = "manual"


class OperatorCall(Struct, frozen=True, kw_only=True):
    """One entry of `process`: an operator and its parameters."""

    index: int  # index in the whole list, from 0, used by all events and files
    name: str
    params: dict[str, Any] = {}


class CheckpointSettings(Struct, frozen=True, kw_only=True):
    strategy: CheckpointStrategy = CheckpointStrategy.EVERY_N_OPS
    n_ops: int = 5
    op_names: tuple[str, ...] = ()


class PartitionSettings(Struct, frozen=True, kw_only=True):
    mode: PartitionMode = PartitionMode.AUTO
    size: int | None = None  # rows
    num_of_partitions: int | None = None
    target_size_mb: float | None = None
    max_size_mb: float | None = None
    max_concurrent_partitions: int | None = None  # None: one per worker
    max_retries: int = 3  # of a failed partition


class Recipe(Struct, frozen=True, kw_only=True):
    """All paths are absolute and all placeholders resolved, except {job_id} before the job exists."""

    dataset_path: tuple[str, ...]  # files, folders and patterns
    export_path: str
    work_dir: str
    process: tuple[OperatorCall, ...]
    name: str = ""  # project_name, or the name of the file
    executor: Executor = Executor.LOCAL
    executor_type: str = "default"  # as it was written
    np: int = DEFAULT_NP
    suffixes: tuple[str, ...] = ()  # of files to read from folders; (): all readable ones
    text_keys: tuple[str, ...] = ("text",)  # operators use the first by default
    image_key: str = "images"
    audio_key: str = "audios"
    video_key: str = "videos"
    export_type: str = ""  # jsonl, json, parquet; "": by the ending of the path
    export_shard_bytes: int = 0  # 0: one file
    skip_op_error: bool = True
    max_rejects: str = ""  # rows ("10") or a share of them ("5%") that may be rejected; "": any number
    checkpoint: CheckpointSettings = CheckpointSettings()
    partition: PartitionSettings = PartitionSettings()
    auto_configure: bool = False  # resource_optimization: partitions and workers from data and machine
    memory_budget_bytes: int | None = None  # of all workers together; None: by the machine
    log_events: bool = True
    event_log_dir: str = ""  # "": in the job's folder
    checkpoint_dir: str = ""
    keep_stats: bool = False  # keep_stats_in_res_ds
    trace: bool = False  # open_tracer: examples of changed and dropped rows per operator
    trace_rows: int = 10
    trace_operators: tuple[str, ...] = ()  # op_list_to_trace; (): all
    trace_keys: tuple[str, ...] = ()  # additional fields of each example
    delimiter: str = ""  # of CSV; "": by the name of each file
    ray_address: str = "auto"
    is_strict_preflight: bool = True
    custom_operator_paths: tuple[str, ...] = ()
    job_id: str = ""
    resume: str = ""
    is_strict: bool = False  # the first bad row fails the job
    ignored: tuple[str, ...] = ()  # known keys without effect here


def most_rejects(limit: str, rows: int) -> int:
    """Returns how many of `rows` may be rejected with this `max_rejects`."""
    return int(rows * float(limit[:-1]) / 100) if limit.endswith("%") else int(limit)


class Slice(Struct, frozen=True, kw_only=True):
    """A part of one file. Plain JSON lines are split by bytes at ends of lines, Parquet by rows; `end` is
    exclusive."""

    path: str
    format: str  # jsonl, parquet; before splitting also json (one array), csv
    compression: str = ""  # gzip, zstd
    delimiter: str = ""  # of CSV; "": by its name
    start: int = 0
    end: int
    size_bytes: int = 0  # of its content; 0: end - start
    origin: str = ""  # the file it is a part of, if that is not `path`
    origin_row: int = 0  # lines of that file before `path`
    digest: str = ""  # of the file at `path`, if the job wrote it


class Partition(Struct, frozen=True, kw_only=True):
    id: int
    slices: tuple[Slice, ...]
    size_bytes: int
    rows: int | None = None  # None: unknown before it is read
    first_row: int | None = None  # index in the whole dataset


class InputFile(Struct, frozen=True, kw_only=True):
    """State of an input when the job was planned; a resumed job must find it unchanged."""

    path: str
    size: int
    modified_ns: int
    digest: str  # over samples of its content spread over the file


class Stage(Struct, frozen=True, kw_only=True):
    """Operators from `first` to `end` (exclusive) run on each partition separately.
    `closing` is the global operator after them; None: the last stage, which is exported.
    """

    index: int
    first: int
    end: int
    closing: int | None = None


class RecipePlan(Struct, frozen=True, kw_only=True):
    """All decisions before the first row is read, stored in the job's folder for resuming."""

    job_id: str
    job_dir: str
    recipe: Recipe
    recipe_text: str  # as written
    recipe_path: str = ""
    stages: tuple[Stage, ...]
    partitions: tuple[Partition, ...]  # without files that must be split first
    inputs: tuple[InputFile, ...]
    columns: tuple[str, ...]  # fields that operators use as columns; the rest of a row is kept as read
    needed: tuple[str, ...] = ()  # other required fields: those of text_keys
    checkpoint_after: tuple[int, ...]  # operators with a checkpoint, by index
    workers: int
    budget_bytes: int
    modality: str = "text"
    total_bytes: int = 0
    total_rows: int | None = None
    created_at_us: int = 0
    uncut: tuple[Slice, ...] = ()  # files that the job splits first: they cannot be read from the middle
    target_bytes: int = DEFAULT_TARGET_MB * 2**20  # of a partition
    rows_per_partition: int | None = None
    exact_partitions: int | None = None  # exact number of partitions, whatever their size
    least_partitions: int = 1
    operator_files: tuple[InputFile, ...] = ()  # of the user's own operators
    reasons: tuple[str, ...] = ()  # why these partitions and workers


class EventType(enum.StrEnum):
    JOB_START = "job_start"
    JOB_RESTART = "job_restart"  # the same job, resumed
    JOB_COMPLETE = "job_complete"
    JOB_FAILED = "job_failed"
    JOB_STOPPED = "job_stopped"  # stopped by a user; it can be resumed
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
    REPARTITION_START = "repartition_start"  # all partitions have reached a global operator
    REPARTITION_COMPLETE = "repartition_complete"
    ROWS_REJECTED = "rows_rejected"
    STEP_COMPLETE = "step_complete"  # work outside operators: splitting, reading again, merging results
    EXPORT_START = "export_start"
    EXPORT_COMPLETE = "export_complete"


class Step(enum.StrEnum):
    """Work of a job outside operators, in order."""

    CUTTING = "cutting"  # splitting files that cannot be read from the middle
    READING = "reading"  # of rows, and of their checkpoints
    EXPORTING = "exporting"
    COORDINATING = "coordinating"  # the process that coordinates the workers


class RecipeEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Empty fields are omitted."""

    event_type: str
    timestamp: float  # seconds since 1970
    message: str | UnsetType = UNSET
    event_id: str | UnsetType = UNSET
    job_id: str | UnsetType = UNSET
    partition_id: int | UnsetType = UNSET
    operation_name: str | UnsetType = UNSET
    operation_idx: int | UnsetType = UNSET  # index of the operator in the recipe
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


class ParameterInfo(Struct, frozen=True, kw_only=True):
    name: str
    type: str  # as text
    meaning: str = ""
    default: Any | UnsetType = UNSET  # UNSET: required
    is_required: bool = False


class OperatorInfo(Struct, frozen=True, kw_only=True):
    name: str
    kind: str  # mapper, filter, deduplicator, selector
    summary: str
    parameters: tuple[ParameterInfo, ...] = ()
    shared_parameters: tuple[ParameterInfo, ...] = ()  # of all operators of its kind
    needs: str = ""
    source: str = ""  # file or package of a custom operator
    problem: str = ""  # why it cannot be used here


class Modality(enum.StrEnum):
    TEXT = "text"
    IMAGE = "image"
    AUDIO = "audio"
    VIDEO = "video"
    MULTIMODAL = "multimodal"  # rows of several modalities


class LocalResources(Struct, frozen=True, kw_only=True):
    """Resources available to this process: its limits count, not only the hardware."""

    cpu_cores: int
    available_memory_gb: float
    total_memory_gb: float
    gpu_count: int
    gpu_memory_gb: float | None = None  # of the smallest; None: no GPU, or unknown
    disk_space_gb: float | None = None


class ClusterResources(Struct, frozen=True, kw_only=True):
    num_nodes: int
    total_cpu_cores: int
    available_cpu_cores: int
    total_memory_gb: float
    available_memory_gb: float
    gpu_resources: dict[str, float] = {}
    smallest_node_memory_gb: float | None = None  # a partition must fit on any node


class DataCharacteristics(Struct, frozen=True, kw_only=True):
    """Estimates for the dataset from a spread sample."""

    primary_modality: Modality
    modality_distribution: dict[str, int]  # modality -> rows of the sample
    avg_text_length: float
    avg_images_per_sample: float
    avg_audio_per_sample: float
    avg_video_per_sample: float
    total_samples: int  # estimated if counting would mean reading everything
    sample_size_analyzed: int
    memory_per_sample_mb: float  # 90th percentile
    mean_bytes_per_sample: float
    data_skew_factor: float  # 0: all rows equal, 1: very different
    is_total_estimated: bool = False
    row_group_rows: int | None = None  # of Parquet files
