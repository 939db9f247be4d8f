"""Keys of a recipe file and the kinds of their values. Reading and docs/recipes.md come from these tables."""

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

# Known from recipes of DataJuicer. They are about how it works inside, never about which rows come out.
WITHOUT_EFFECT: dict[str, str] = {
    "adaptive_batch_size": "batches are sized by memory",
    "audio_special_token": "no operator here looks at it",
    "auto_num": "it belongs to an analyzer",
    "auto_op_parallelism": "np says how many workers there are",
    "cache_compress": "there is no cache",
    "conflict_resolve_strategy": "operators are not reordered",
    "data_probe_algo": "it belongs to a sandbox",
    "data_probe_ratio": "it belongs to a sandbox",
    "debug": "logs have everything as it is",
    "ds_cache_dir": "there is no cache",
    "eoc_special_token": "no operator here looks at it",
    "export_in_parallel": "partitions are always written side by side",
    "fusion_strategy": "operators share what they compute as it is",
    "image_bytes_key": "no operator here looks at it",
    "image_special_token": "no operator here looks at it",
    "load_jsonl_lenient": "a bad line never ends a job",
    "mapper_fusion": "operators share what they compute as it is",
    "min_common_dep_num_to_combine": "operators share what they compute as it is",
    "op_fusion": "operators share what they compute as it is",
    "open_monitor": "every job is measured",
    "override_num_blocks": "the section partition says how data is cut",
    "partition_dir": "partitions lie in the job's folder",
    "percentiles": "they belong to an analyzer",
    "read_options": "rows are the same however much is read at once",
    "save_stats_in_one_file": "they belong to an analyzer",
    "temp_dir": "what is in between lies in the job's folder",
    "turbo": "nothing is timed twice",
    "use_cache": "there is no cache",
    "use_checkpoint": "the section checkpoint says it",
    "use_dag": "every job has its plan",
    "video_special_token": "no operator here looks at it",
}
# The same, but they would change what comes out.
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
        key(name, Kind.JSON, f"Known from other recipes; changes nothing: {why}.")
        for name, why in WITHOUT_EFFECT.items()
    )


def _refused() -> tuple[Key, ...]:
    return tuple(
        key(name, Kind.NOT_SUPPORTED, "Known from other recipes; refused.") for name in NOT_SUPPORTED
    )


RECIPE = section(
    "recipe",
    "the recipe",
    "the top of the file",
    key(
        "dataset_path",
        Kind.PATHS,
        "Files, folders and patterns to read: one, or a list; in one text each behind its weight.",
        example="data/*.jsonl",
    ),
    key("dataset", Kind.SECTION, "The same, written the longer way.", section="recipe_dataset"),
    key(
        "suffixes", Kind.WORDS, "Endings of the files to take from folders; all that can be read without it."
    ),
    key(
        "load_dataset_kwargs",
        Kind.SECTION,
        "How files are read.",
        section="recipe_load_dataset_kwargs",
    ),
    key(
        "export_path",
        Kind.PATH,
        "Where the rows go. The ending says the format: .jsonl, .json (one array) or .parquet.",
        example="{work_dir}/{job_id}/out.jsonl",
    ),
    choice("export_type", EXPORT_TYPES, "The format, where the path does not say it."),
    key(
        "export_shard_size",
        Kind.INT,
        "About how many bytes each file has; 0: one file.",
        default=0,
        least=0,
        field="shard_bytes",
    ),
    key("work_dir", Kind.PATH, "Where the job's folder is made; the folder of export_path without it."),
    required("process", Kind.OPERATORS, "The operators, in order, each with what it is told."),
    key("project_name", Kind.NAME, "What the job is called; the file's name without it.", field="name"),
    choice(
        "executor_type",
        EXECUTOR_TYPES,
        "default and local: processes here. The others: Ray.",
        default="default",
    ),
    key("np", Kind.INT, "Workers at most; not used with auto_configure.", default=DEFAULT_NP, least=1),
    key(
        "text_keys", Kind.WORDS, "Field with the text; operators may name another (text_key).", default="text"
    ),
    key("image_key", Kind.TEXT, "Field with images.", default="images"),
    key("audio_key", Kind.TEXT, "Field with audio files.", default="audios"),
    key("video_key", Kind.TEXT, "Field with videos.", default="videos"),
    flag(
        "skip_op_error", "A row that an operator fails on is put aside; false: it ends the job.", default=True
    ),
    key(
        "max_rejects",
        Kind.REJECT_LIMIT,
        "The job fails when more rows than this are rejected: a number, or a percentage of all rows.",
        example="5%",
    ),
    key("checkpoint", Kind.SECTION, "What is kept on the way.", section="recipe_checkpoint"),
    key("checkpoint_dir", Kind.PATH, "Where it is kept; in the job's folder without it."),
    key("event_logging", Kind.SECTION, "The log of events.", section="recipe_event_logging"),
    key("event_log_dir", Kind.PATH, "Where the log of events lies; in the job's folder without it."),
    key("partition", Kind.SECTION, "How the data is cut.", section="recipe_partition"),
    key(
        "resource_optimization",
        Kind.SECTION,
        "Whether that is found out from the data and the machine.",
        section="recipe_resource_optimization",
    ),
    flag(
        "keep_stats_in_res_ds", "Write the numbers that filters computed beside each row.", field="keep_stats"
    ),
    flag("open_tracer", "Keep examples of what each operator changed or dropped.", field="trace"),
    key(
        "trace_num", Kind.INT, "How many examples of each operator.", default=10, least=1, field="trace_rows"
    ),
    key(
        "op_list_to_trace",
        Kind.WORDS,
        "Operators to trace; all of them without it.",
        field="trace_operators",
    ),
    key("trace_keys", Kind.WORDS, "Fields of the row that each example shows besides."),
    key(
        "ray_address",
        Kind.TEXT,
        "Which Ray cluster; auto: the one around, or one on this machine.",
        default="auto",
    ),
    flag(
        "strict_preflight",
        "Refuse what cannot work before anything runs; always done.",
        default=True,
        field="is_strict_preflight",
    ),
    key("custom_operator_paths", Kind.PATHS, "Files and folders with operators of your own."),
    key("job_id", Kind.JOB_ID, "Name of the job and its folder; made up without it."),
    key("resume", Kind.JOB_ID, "The job to go on with."),
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
    key("max_sample_num", Kind.NOT_SUPPORTED, "Known from other recipes; refused."),
)

SOURCE = section(
    "recipe_source",
    "a source",
    "an entry of `configs` of `dataset`",
    choice("type", ("local",), "Where it is.", default="local"),
    required("path", Kind.PATHS, "Files, folders and patterns to read."),
    key("weight", Kind.NUMBER, "Known from other recipes; changes nothing without max_sample_num.", least=0),
)

LOADING = section(
    "recipe_load_dataset_kwargs",
    "load_dataset_kwargs",
    "`load_dataset_kwargs`",
    key("delimiter", Kind.TEXT, "Character between the values of CSV files; by their name without it."),
    key("sep", Kind.TEXT, "The same."),
    *(
        key(name, Kind.JSON, "Known from other recipes; changes nothing.")
        for name in ("num_proc", "cache_dir", "keep_in_memory", "download_mode", "verification_mode")
    ),
    *(
        key(name, Kind.NOT_SUPPORTED, "Known from other recipes; refused.")
        for name in ("columns", "features", "field", "split")
    ),
    excludes=(("delimiter", ("sep",)),),
)

CHECKPOINT = section(
    "recipe_checkpoint",
    "checkpoint",
    "`checkpoint`",
    flag("enabled", "false: nothing is kept, as with strategy disabled.", default=True),
    choice("strategy", CheckpointStrategy, "Behind which operators rows are kept.", default="every_n_ops"),
    key("n_ops", Kind.INT, "With every_n_ops: behind each so many.", default=5, least=1),
    key("op_names", Kind.WORDS, "With manual: behind these."),
    needs=(Need("strategy", (CheckpointStrategy.MANUAL.value,), ("op_names",)),),
)

EVENT_LOGGING = section(
    "recipe_event_logging",
    "event_logging",
    "`event_logging`",
    flag("enabled", "Write the log of events.", default=True, field="log_events"),
)

PARTITION = section(
    "recipe_partition",
    "partition",
    "`partition`",
    choice(
        "mode", PartitionMode, "manual: as num_of_partitions or size says; auto: by size.", default="auto"
    ),
    key("size", Kind.INT, "Rows of a partition; not used with auto_configure.", least=1),
    key(
        "num_of_partitions",
        Kind.INT,
        "Partitions; 4 with mode manual and no size. Not used with auto_configure.",
        least=1,
    ),
    key(
        "target_size_mb",
        Kind.NUMBER,
        "What a partition should have in memory.",
        default=DEFAULT_TARGET_MB,
        more_than=0,
    ),
    key("max_size_mb", Kind.NUMBER, "What a partition has in memory at most.", more_than=0),
    key(
        "max_concurrent_partitions",
        Kind.COUNT_OR_AUTO,
        "Partitions at once; auto: one a worker.",
        default="auto",
    ),
    key("max_retries", Kind.INT, "How often a partition that failed is tried again.", default=3, least=0),
    excludes=(("size", ("num_of_partitions",)),),
)

RESOURCE_OPTIMIZATION = section(
    "recipe_resource_optimization",
    "resource_optimization",
    "`resource_optimization`",
    flag("auto_configure", "Choose partitions and workers from a look at data and machine."),
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
    for place, each in enumerate(raw):
        try:
            values.append(read(each))
        except Wrong as wrong:
            notes += [((place, *path), text) for path, text in wrong.notes]
    if notes:
        raise Wrong(notes)
    return tuple(values)


def read_job_id(raw: Any) -> str:
    text = read_text(raw)
    if _JOB_ID.fullmatch(text) is None or len(text) > _LONGEST_JOB_ID:
        fail(f"{_job_id_rule(text)}, not {shown(raw)}: it becomes the name of a folder")
    return text


def _job_id_rule(text: str) -> str:
    if not text:
        return "must be a name"
    if len(text) > _LONGEST_JOB_ID:
        return f"must have at most {_LONGEST_JOB_ID} characters"
    if _JOB_ID.fullmatch(f"x{text[1:]}") is not None:
        return "must begin with a letter, a digit or '_'"
    return "must be letters, digits, '_', '-' and '.'"


def read_count_or_auto(raw: Any) -> int | None:
    """None: auto."""
    if raw == "auto":
        return None
    try:
        count = read_whole(raw)
    except Wrong:
        expected(Kind.COUNT_OR_AUTO, raw)
    return count if count >= 1 else fail(f"must be at least 1, not {shown(raw)}")


def read_reject_limit(raw: Any) -> str:
    """As text: '10' or '2.5%'."""
    text = str(raw).strip() if isinstance(raw, int | str) and not isinstance(raw, bool) else ""
    if _REJECT_LIMIT.fullmatch(text) is None or (text.endswith("%") and float(text[:-1]) > _ALL_PERCENT):
        expected(Kind.REJECT_LIMIT, raw)
    return text


def refuse_unless_off(raw: Any) -> None:
    """Recipes often carry every key there is, with the value that means nothing."""
    if raw not in (None, False, "", [], {}, 0):
        fail("is not supported here: it would change what comes out, so it is not passed over")


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
    """`name: {…}`, `name:` or just the name."""
    if isinstance(entry, str):
        entry = {entry: None}
    if not isinstance(entry, dict):
        fail(f"must be an operator with what it is told (name: {{…}}), not {shown(entry)}")
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
        return f"must be one operator; '{second}' beside '{first}' is to be indented further, or needs a '-'"
    return f"must be one operator; '{second}' needs a '-' of its own"
