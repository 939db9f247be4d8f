"""Keys of a recipe file and the kinds of their values. Used by the reader and docs/recipes.md."""

import re
from typing import Any

from joblens.model.recipes.recipe import (
    DEFAULT_NP,
    DEFAULT_TARGET_MB,
    CheckpointStrategy,
    OperatorCall,
    PartitionMode,
)
from joblens.spec.formats.positions import shown
from joblens.spec.keys.kinds import Kind, Note, Wrong, expected, fail, read_path, read_text, read_whole
from joblens.spec.keys.table import Key, Need, Section, choice, flag, key, required, section

EXECUTOR_TYPES = ("default", "local", "ray", "ray_partitioned")
EXPORT_TYPES = ("jsonl", "json", "parquet")

# Keys of DataJuicer recipes about its internals, which do not affect the result.
WITHOUT_EFFECT: dict[str, str] = {
    "adaptive_batch_size": "batches are sized by memory",
    "audio_special_token": "no operator here uses it",
    "auto_num": "it belongs to an analyzer",
    "auto_op_parallelism": "np is the number of workers",
    "cache_compress": "there is no cache",
    "conflict_resolve_strategy": "operators are not reordered",
    "data_probe_algo": "it belongs to a sandbox",
    "data_probe_ratio": "it belongs to a sandbox",
    "debug": "logs are not filtered",
    "ds_cache_dir": "there is no cache",
    "eoc_special_token": "no operator here uses it",
    "export_in_parallel": "partitions are always written in parallel",
    "fusion_strategy": "operators always share intermediate results",
    "image_bytes_key": "no operator here uses it",
    "image_special_token": "no operator here uses it",
    "load_jsonl_lenient": "a bad line never ends a job",
    "mapper_fusion": "operators always share intermediate results",
    "min_common_dep_num_to_combine": "operators always share intermediate results",
    "op_fusion": "operators always share intermediate results",
    "open_monitor": "every job is measured",
    "override_num_blocks": "use the section partition",
    "partition_dir": "partitions are in the job's directory",
    "percentiles": "they belong to an analyzer",
    "read_options": "the result does not depend on the batch size",
    "save_stats_in_one_file": "they belong to an analyzer",
    "temp_dir": "temporary files are in the job's directory",
    "turbo": "nothing is timed twice",
    "use_cache": "there is no cache",
    "use_checkpoint": "use the section checkpoint",
    "use_dag": "every job has its plan",
    "video_special_token": "no operator here uses it",
}
# The same, but these would change the result.
NOT_SUPPORTED = (
    "auto",
    "decrypt_after_reading",
    "encrypt_before_export",
    "export_aws_credentials",
    "export_extra_args",
    "export_original_dataset",
    "generated_dataset_config",
    "hpo_config",
    "keep_hashes_in_res_ds",
    "open_insight_mining",
    "validators",
)


def _ignored() -> tuple[Key, ...]:
    return tuple(
        key(name, Kind.JSON, f"Accepted for compatibility; no effect: {why}.")
        for name, why in WITHOUT_EFFECT.items()
    )


def _refused() -> tuple[Key, ...]:
    return tuple(
        key(name, Kind.NOT_SUPPORTED, "Not supported; rejected because it would change the result.")
        for name in NOT_SUPPORTED
    )


RECIPE = section(
    "recipe",
    "the recipe",
    "the top of the file",
    key(
        "dataset_path",
        Kind.PATHS,
        "Files, directories and patterns to read, one or a list. One text may hold paths with weights.",
        example="data/*.jsonl",
    ),
    key("dataset", Kind.SECTION, "Long form of dataset_path.", section="recipe_dataset"),
    key("suffixes", Kind.WORDS, "Extensions of files to read from directories. Default: all readable ones."),
    key(
        "load_dataset_kwargs",
        Kind.SECTION,
        "How files are read.",
        section="recipe_load_dataset_kwargs",
    ),
    key(
        "export_path",
        Kind.PATH,
        "Output path. The extension sets the format: .jsonl, .json (one array) or .parquet.",
        example="{work_dir}/{job_id}/out.jsonl",
    ),
    choice("export_type", EXPORT_TYPES, "Format, if the path does not say it."),
    key(
        "export_shard_size",
        Kind.INT,
        "Approximate size per file in bytes; 0: one file.",
        default=0,
        least=0,
        field="shard_bytes",
    ),
    key("work_dir", Kind.PATH, "Directory for the job's directory. Default: the directory of export_path."),
    required("process", Kind.OPERATORS, "Operators with their parameters, in order."),
    key("project_name", Kind.NAME, "Name of the job. Default: the file's name.", field="name"),
    choice(
        "executor_type",
        EXECUTOR_TYPES,
        "default and local: processes on this machine. Others: Ray.",
        default="default",
    ),
    key(
        "np", Kind.INT, "Maximum number of workers; ignored with auto_configure.", default=DEFAULT_NP, least=1
    ),
    key(
        "text_keys", Kind.WORDS, "Field with the text; operators may use another (text_key).", default="text"
    ),
    key("image_key", Kind.TEXT, "Field with images.", default="images"),
    key("audio_key", Kind.TEXT, "Field with audio files.", default="audios"),
    key("video_key", Kind.TEXT, "Field with videos.", default="videos"),
    flag(
        "skip_op_error",
        "Set aside rows on which an operator fails; false: such a row ends the job.",
        default=True,
    ),
    key(
        "max_rejects",
        Kind.REJECT_LIMIT,
        "Fail if more rows than this are rejected: a number, or a percentage of all rows.",
        example="5%",
    ),
    key("checkpoint", Kind.SECTION, "Checkpoints.", section="recipe_checkpoint"),
    key("checkpoint_dir", Kind.PATH, "Directory for checkpoints. Default: in the job's directory."),
    key("event_logging", Kind.SECTION, "Event log.", section="recipe_event_logging"),
    key("event_log_dir", Kind.PATH, "Directory for the event log. Default: in the job's directory."),
    key("partition", Kind.SECTION, "How the data is split.", section="recipe_partition"),
    key(
        "resource_optimization",
        Kind.SECTION,
        "Derive partitions and workers from the data and the machine.",
        section="recipe_resource_optimization",
    ),
    flag("keep_stats_in_res_ds", "Write the statistics of filters with each row.", field="keep_stats"),
    flag("open_tracer", "Keep examples of rows that each operator changed or dropped.", field="trace"),
    key("trace_num", Kind.INT, "Examples per operator.", default=10, least=1, field="trace_rows"),
    key(
        "op_list_to_trace",
        Kind.WORDS,
        "Operators to trace. Default: all.",
        field="trace_operators",
    ),
    key("trace_keys", Kind.WORDS, "Additional fields of the row in each example."),
    key(
        "ray_address",
        Kind.TEXT,
        "Ray cluster; auto: the one this machine belongs to, or a local one.",
        default="auto",
    ),
    flag(
        "strict_preflight",
        "Check everything before anything runs; always done.",
        default=True,
        field="is_strict_preflight",
    ),
    key("custom_operator_paths", Kind.PATHS, "Files and directories with your own operators."),
    key("job_id", Kind.JOB_ID, "ID of the job and name of its directory. Default: generated."),
    key("resume", Kind.JOB_ID, "Job to resume."),
    *_ignored(),
    *_refused(),
    needs_any=("dataset_path", "dataset"),
    excludes=(("dataset_path", ("dataset",)),),
)

DATASET = section(
    "recipe_dataset",
    "dataset",
    "`dataset`",
    required("configs", Kind.SECTIONS, "The sources.", section="recipe_source"),
    key("max_sample_num", Kind.NOT_SUPPORTED, "Not supported; rejected because it would change the result."),
)

SOURCE = section(
    "recipe_source",
    "a source",
    "an entry of `configs` of `dataset`",
    choice("type", ("local",), "Kind of source.", default="local"),
    required("path", Kind.PATHS, "Files, directories and patterns to read."),
    key("weight", Kind.NUMBER, "Accepted for compatibility; no effect without max_sample_num.", least=0),
)

LOADING = section(
    "recipe_load_dataset_kwargs",
    "load_dataset_kwargs",
    "`load_dataset_kwargs`",
    key("delimiter", Kind.TEXT, "Separator of values in CSV files. Default: by file extension."),
    key("sep", Kind.TEXT, "The same."),
    *(
        key(name, Kind.JSON, "Accepted for compatibility; no effect.")
        for name in ("num_proc", "cache_dir", "keep_in_memory", "download_mode", "verification_mode")
    ),
    *(
        key(name, Kind.NOT_SUPPORTED, "Not supported; rejected because it would change the result.")
        for name in ("columns", "features", "field", "split")
    ),
    excludes=(("delimiter", ("sep",)),),
)

CHECKPOINT = section(
    "recipe_checkpoint",
    "checkpoint",
    "`checkpoint`",
    flag("enabled", "false: no checkpoints, as with strategy disabled.", default=True),
    choice(
        "strategy", CheckpointStrategy, "After which operators to write a checkpoint.", default="every_n_ops"
    ),
    key("n_ops", Kind.INT, "With every_n_ops: after every so many operators.", default=5, least=1),
    key("op_names", Kind.WORDS, "With manual: after these operators."),
    needs=(Need("strategy", (CheckpointStrategy.MANUAL.value,), ("op_names",)),),
)

EVENT_LOGGING = section(
    "recipe_event_logging",
    "event_logging",
    "`event_logging`",
    flag("enabled", "Write the event log.", default=True, field="log_events"),
)

PARTITION = section(
    "recipe_partition",
    "partition",
    "`partition`",
    choice("mode", PartitionMode, "manual: by num_of_partitions or size; auto: by size.", default="auto"),
    key("size", Kind.INT, "Rows per partition; ignored with auto_configure.", least=1),
    key(
        "num_of_partitions",
        Kind.INT,
        "Number of partitions; 4 with mode manual and no size. Ignored with auto_configure.",
        least=1,
    ),
    key(
        "target_size_mb",
        Kind.NUMBER,
        "Target size of a partition in memory.",
        default=DEFAULT_TARGET_MB,
        more_than=0,
    ),
    key("max_size_mb", Kind.NUMBER, "Maximum size of a partition in memory.", more_than=0),
    key(
        "max_concurrent_partitions",
        Kind.COUNT_OR_AUTO,
        "Partitions processed in parallel; auto: one per worker.",
        default="auto",
    ),
    key("max_retries", Kind.INT, "Retries of a failed partition.", default=3, least=0),
    excludes=(("size", ("num_of_partitions",)),),
)

RESOURCE_OPTIMIZATION = section(
    "recipe_resource_optimization",
    "resource_optimization",
    "`resource_optimization`",
    flag("auto_configure", "Choose partitions and workers by sampling the data and the machine."),
    key("memory_budget_mb", Kind.NUMBER, "Memory of all workers together.", more_than=0),
)

RECIPE_SECTIONS: dict[str, Section] = {
    one.name: one
    for one in (RECIPE, DATASET, SOURCE, LOADING, CHECKPOINT, EVENT_LOGGING, PARTITION, RESOURCE_OPTIMIZATION)
}


_LONGEST_JOB_ID = 128
_JOB_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_REJECT_LIMIT = re.compile(r"[0-9]{1,15}|[0-9]{1,3}(\.[0-9]{1,9})?%", re.ASCII)
_ALL_PERCENT = 100
_OPERATOR_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


def read_paths(raw: Any) -> tuple[str, ...]:
    return _one_or_more(raw, Kind.PATHS, read_path)


def read_words(raw: Any) -> tuple[str, ...]:
    return _one_or_more(raw, Kind.WORDS, _word)


def _word(raw: Any) -> str:
    text = read_text(raw)
    return text if text.strip() else fail("must not be empty")


def _one_or_more(raw: Any, kind: Kind, read: Any) -> tuple[str, ...]:
    if isinstance(raw, dict):
        expected(kind, raw)
    if not isinstance(raw, list):
        return (read(raw),)
    notes: list[Note] = []
    values = []
    for index, each in enumerate(raw):
        try:
            values.append(read(each))
        except Wrong as wrong:
            notes += [((index, *path), text) for path, text in wrong.notes]
    if notes:
        raise Wrong(notes)
    return tuple(values)


def read_job_id(raw: Any) -> str:
    text = read_text(raw)
    if _JOB_ID.fullmatch(text) is None or len(text) > _LONGEST_JOB_ID:
        fail(f"{_job_id_rule(text)}, not {shown(raw)}: it is used as the name of a directory")
    return text


def _job_id_rule(text: str) -> str:
    if not text:
        return "must be a name"
    if len(text) > _LONGEST_JOB_ID:
        return f"must have at most {_LONGEST_JOB_ID} characters"
    if _JOB_ID.fullmatch(f"x{text[1:]}") is not None:
        return "must start with a letter, a digit or '_'"
    return "must consist of letters, digits, '_', '-' and '.'"


def read_count_or_auto(raw: Any) -> int | None:
    """Parses a count; None: auto."""
    if raw == "auto":
        return None
    try:
        count = read_whole(raw)
    except Wrong:
        expected(Kind.COUNT_OR_AUTO, raw)
    return count if count >= 1 else fail(f"must be at least 1, not {shown(raw)}")


def read_reject_limit(raw: Any) -> str:
    """Returns the limit as text: '10' or '2.5%'."""
    text = str(raw).strip() if isinstance(raw, int | str) and not isinstance(raw, bool) else ""
    if _REJECT_LIMIT.fullmatch(text) is None or (text.endswith("%") and float(text[:-1]) > _ALL_PERCENT):
        expected(Kind.REJECT_LIMIT, raw)
    return text


def refuse_unless_off(raw: Any) -> None:
    """Rejects a key unless its value turns it off: recipes often list every key."""
    if raw not in (None, False, "", [], {}, 0):
        fail("is not supported: it would change the result")


def read_operators(raw: Any) -> tuple[OperatorCall, ...]:
    if not isinstance(raw, list):
        expected(Kind.OPERATORS, raw)
    if not raw:
        fail("must have at least one operator")
    notes: list[Note] = []
    calls = []
    for index, entry in enumerate(raw):
        try:
            calls.append(_operator_call(index, entry))
        except Wrong as wrong:
            notes += [((index, *path), text) for path, text in wrong.notes]
    if notes:
        raise Wrong(notes)
    return tuple(calls)


def _operator_call(index: int, entry: Any) -> OperatorCall:
    """Parses `name: {…}`, `name:` or the bare name."""
    if isinstance(entry, str):
        entry = {entry: None}
    if not isinstance(entry, dict):
        fail(f"must be an operator with its parameters (name: {{…}}), not {shown(entry)}")
    if len(entry) != 1:
        fail(_not_one(entry))
    ((name, params),) = entry.items()
    if _OPERATOR_NAME.fullmatch(name) is None:
        fail(f"must be the name of an operator, not {shown(name)}")
    if params is not None and not isinstance(params, dict):
        raise Wrong([((name,), f"must be a mapping of its parameters, not {shown(params)}")])
    return OperatorCall(index=index, name=name, params=dict(params or {}))


def _not_one(entry: dict[str, Any]) -> str:
    if not entry:
        return "must name an operator; this one is empty"
    first, second = list(entry)[:2]
    if entry[first] is None:
        return f"must be one operator; indent '{second}' more than '{first}', or write a '-' before it"
    return f"must be one operator; write a '-' before '{second}'"
