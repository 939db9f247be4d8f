"""A recipe: operators over a dataset, as its file says it, and the plan that is made of it."""

import enum
from typing import Any

from msgspec import Struct

DEFAULT_TARGET_MB = 64  # of a partition, where the recipe does not say
DEFAULT_NP = 4


class Executor(enum.StrEnum):
    LOCAL = "local"  # worker processes on this machine
    RAY = "ray"


class CheckpointStrategy(enum.StrEnum):
    EVERY_OP = "every_op"
    EVERY_PARTITION = "every_partition"  # once, behind the last operator before the partitions meet again
    EVERY_N_OPS = "every_n_ops"
    MANUAL = "manual"  # behind the operators that are named
    DISABLED = "disabled"


class PartitionMode(enum.StrEnum):
    AUTO = "auto"
    MANUAL = "manual"


class OperatorCall(Struct, frozen=True, kw_only=True):
    """One entry of `process`: an operator and what it is told."""

    index: int  # place in the whole list, from 0; all events and files use this one
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
    max_concurrent_partitions: int | None = None  # None: as many as there are workers
    max_retries: int = 3  # of a partition that failed


class Recipe(Struct, frozen=True, kw_only=True):
    """Every path is absolute and every placeholder is filled in, except {job_id} before there is a job."""

    dataset_path: tuple[str, ...]  # files, folders and patterns
    export_path: str
    work_dir: str
    process: tuple[OperatorCall, ...]
    name: str = ""  # project_name, or the file's own
    executor: Executor = Executor.LOCAL
    executor_type: str = "default"  # as it was written
    np: int = DEFAULT_NP
    suffixes: tuple[str, ...] = ()  # of files to take from folders; (): all that can be read
    text_keys: tuple[str, ...] = ("text",)  # operators work on the first unless they are told another
    image_key: str = "images"
    audio_key: str = "audios"
    video_key: str = "videos"
    export_type: str = ""  # jsonl, json, parquet; "": as the path ends
    export_shard_bytes: int = 0  # 0: one file
    skip_op_error: bool = True
    max_rejects: str = ""  # rows ("10") or a share of them ("5%") that may be rejected; "": any number
    checkpoint: CheckpointSettings = CheckpointSettings()
    partition: PartitionSettings = PartitionSettings()
    auto_configure: bool = False  # resource_optimization: partitions and workers from data and machine
    memory_budget_bytes: int | None = None  # of all workers together; None: what the machine can spare
    log_events: bool = True
    event_log_dir: str = ""  # "": in the job's folder
    checkpoint_dir: str = ""
    keep_stats: bool = False  # keep_stats_in_res_ds
    trace: bool = False  # open_tracer: examples of what each operator changed or dropped
    trace_rows: int = 10
    trace_operators: tuple[str, ...] = ()  # op_list_to_trace; (): all
    trace_keys: tuple[str, ...] = ()  # fields that each example has besides
    delimiter: str = ""  # of CSV; "": by the name of each file
    ray_address: str = "auto"
    is_strict_preflight: bool = True
    custom_operator_paths: tuple[str, ...] = ()
    job_id: str = ""
    resume: str = ""
    is_strict: bool = False  # the first bad row ends the job
    ignored: tuple[str, ...] = ()  # keys that are known and change nothing here


def most_rejects(limit: str, rows: int) -> int:
    """How many of so many rows `max_rejects` allows to be rejected."""
    return int(rows * float(limit[:-1]) / 100) if limit.endswith("%") else int(limit)


class Slice(Struct, frozen=True, kw_only=True):
    """A part of one file. Plain JSON lines are cut by bytes at the ends of lines, Parquet by rows; `end`
    is the first that does not belong to it any more."""

    path: str
    format: str  # jsonl, parquet; before it is cut also json (one array), csv
    compression: str = ""  # gzip, zstd
    delimiter: str = ""  # of CSV; "": by its name
    start: int = 0
    end: int
    size_bytes: int = 0  # of what is in it; 0: end - start
    origin: str = ""  # the file it was cut out of, where that is not `path`
    origin_row: int = 0  # how many lines of that file come before `path`
    digest: str = ""  # of the file at `path`, where the job wrote it itself


class Partition(Struct, frozen=True, kw_only=True):
    id: int
    slices: tuple[Slice, ...]
    size_bytes: int
    rows: int | None = None  # where it is known before it is read
    first_row: int | None = None  # of the whole dataset


class InputFile(Struct, frozen=True, kw_only=True):
    """What an input was like when the job was planned; a resumed job must find it so again."""

    path: str
    size: int
    modified_ns: int
    digest: str  # over samples of its content spread over the file


class Stage(Struct, frozen=True, kw_only=True):
    """Operators `first` to before `end` run on each partition by itself. `closing` is the operator behind
    them that has to see all partitions before any can go on; None: the last stage, which is exported."""

    index: int
    first: int
    end: int
    closing: int | None = None


class RecipePlan(Struct, frozen=True, kw_only=True):
    """Everything that is decided before the first row is read, kept in the job's folder. A resumed job
    goes on with it."""

    job_id: str
    job_dir: str
    recipe: Recipe
    recipe_text: str  # as it was written
    recipe_path: str = ""  # where it was read
    stages: tuple[Stage, ...]
    partitions: tuple[Partition, ...]  # without what is still to be cut
    inputs: tuple[InputFile, ...]
    columns: tuple[str, ...]  # fields that operators see as columns; the rest of a row travels as it was read
    needed: tuple[str, ...] = ()  # other fields that every row has to have: those of text_keys
    checkpoint_after: tuple[int, ...]  # operators whose result is kept, by index
    workers: int
    budget_bytes: int
    modality: str = "text"
    total_bytes: int = 0
    total_rows: int | None = None
    created_at_us: int = 0
    uncut: tuple[Slice, ...] = ()  # files that the job itself cuts first: they cannot be read from the middle
    target_bytes: int = DEFAULT_TARGET_MB * 2**20  # of a partition
    rows_per_partition: int | None = None
    exact_partitions: int | None = None  # as many as that, whatever their size
    least_partitions: int = 1
    operator_files: tuple[InputFile, ...] = ()  # of the user's own operators
    reasons: tuple[str, ...] = ()  # why these partitions and workers
