"""Recipe file parser: returns a Recipe, or all problems."""

import glob
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from msgspec import Struct

from joblens.model.recipes.recipe import (
    CheckpointSettings,
    CheckpointStrategy,
    Executor,
    PartitionMode,
    PartitionSettings,
    Recipe,
)
from joblens.model.values.units import counted
from joblens.plan.recipes.job_folder import JOB_ID, job_dir_in
from joblens.spec.formats.documents import read_document
from joblens.spec.formats.positions import Document, Mark, Path, Problem, nearest_word
from joblens.spec.keys.kinds import Note, Wrong, of_file
from joblens.spec.keys.readers import Reader, read_file, section_readers
from joblens.spec.keys.recipe import RECIPE_SECTIONS, WITHOUT_EFFECT

WORK_DIR = "{work_dir}"

_MB = 2**20
_USUAL_PARTITIONS = 4  # of mode manual, without a number
_RAY = ("ray", "ray_partitioned")
_FORMATS = {".parquet": "parquet", ".jsonl": "jsonl", ".json": "json"}
_PATHS = ("export_path", "checkpoint_dir", "event_log_dir")
_WRITTEN = ("work_dir", *_PATHS)
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_WEIGHT = re.compile(r"[0-9]+(\.[0-9]*)?|\.[0-9]+")
_PLACEHOLDER = re.compile(r"\{[A-Za-z_]\w*\}")
_AS_THEY_ARE = frozenset({
    "name", "np", "suffixes", "image_key", "audio_key", "video_key", "export_type", "skip_op_error",
    "max_rejects", "keep_stats", "trace", "trace_rows", "trace_operators", "trace_keys", "ray_address",
    "is_strict_preflight", "job_id", "resume", "executor_type", "process", "is_strict",
})  # fmt: skip


class RecipeReading(Struct, frozen=True):
    """`recipe` is None if there are problems, which are sorted by position."""

    recipe: Recipe | None
    problems: tuple[Problem, ...]
    document: Document
    path_note: str = ""  # paths and weights that texts of dataset_path were split into

    def mark(self, path: Path) -> Mark:
        return self.document.mark(path)


def read_recipe(
    text: str,
    format: str,  # noqa: A002
    source: str,
    *,
    cwd: str,
    given: Mapping[str, Any] | None = None,
) -> RecipeReading:
    """Parses a recipe. Never raises for its content.

    `source`: the file's name, for messages and as default name of the job. Relative paths start at `cwd`.
    `given`: checked values that override keys of the file.
    """
    document = read_document(text, format)
    made, problems = read_file(
        document,
        lambda value: _recipe_of(value, source, cwd, given or {}),
        f"{source} is empty; a recipe has dataset_path and process",
    )
    recipe, path_note = made or (None, "")
    return RecipeReading(recipe, problems, document, path_note)


def _recipe_of(value: Any, source: str, cwd: str, given: Mapping[str, Any]) -> tuple[Recipe, str]:
    """Builds the recipe, and the note about its paths."""
    try:
        values: dict[str, Any] = _readers()["recipe"](value)
    except Wrong as wrong:
        raise of_file(wrong) from None
    values.setdefault("name", os.path.splitext(os.path.basename(source))[0])
    values = {**values, **{name: each for name, each in given.items() if each is not None}}
    problems = [*_path_problems(values), *_job_problems(values, given)]
    if problems:
        raise Wrong([], problems)
    return _made(values, cwd)


def _made(values: dict[str, Any], cwd: str) -> tuple[Recipe, str]:
    work_dir, paths = _resolved_paths(values, cwd)
    dataset_path, path_note = _dataset_paths(
        values, lambda path: _absolute(path.replace(WORK_DIR, work_dir), cwd)
    )
    fields: dict[str, Any] = {name: each for name, each in values.items() if name in _AS_THEY_ARE}
    fields.setdefault("export_type", _FORMATS.get(_ending(paths["export_path"]), ""))
    fields.update(paths)
    resources = values.get("resource_optimization", {})
    budget_mb = resources.get("memory_budget_mb")
    recipe = Recipe(
        **fields,
        work_dir=work_dir,
        dataset_path=dataset_path,
        executor=Executor.RAY if values.get("executor_type") in _RAY else Executor.LOCAL,
        text_keys=values.get("text_keys") or ("text",),
        export_shard_bytes=values.get("shard_bytes", 0),
        checkpoint=_checkpoint(values.get("checkpoint", {})),
        partition=_partition(values.get("partition", {})),
        auto_configure=resources.get("auto_configure", False),
        memory_budget_bytes=None if budget_mb is None else int(budget_mb * _MB),
        log_events=values.get("event_logging", {}).get("log_events", True),
        custom_operator_paths=tuple(_absolute(path, cwd) for path in values.get("custom_operator_paths", ())),
        delimiter=_delimiter(values),
        ignored=_ignored(values),
    )
    return recipe, path_note


def _delimiter(values: dict[str, Any]) -> str:
    loading = values.get("load_dataset_kwargs", {})
    return str(loading.get("delimiter") or loading.get("sep") or "")


def _ignored(values: dict[str, Any]) -> tuple[str, ...]:
    ignored = {name for name in values if name in WITHOUT_EFFECT}
    if any("weight" in source for source in values.get("dataset", {}).get("configs", ())):
        ignored.add("weight")
    return tuple(sorted(ignored))


def _weighted_paths(written: str, whole: str) -> list[tuple[str, str]]:
    """Splits '0.8 a.jsonl 0.2 b.jsonl' into paths with weights ("": none).

    A text that is the name or pattern of existing files (`whole`) is one path. Weights matter only for random
    sampling, which joblens does not do.
    """
    one = [(written, "")]
    if " " not in written or os.path.exists(whole) or any(glob.iglob(whole, recursive=True)):
        return one
    try:
        words = shlex.split(written)
    except ValueError:  # a quote that is part of the name
        return one
    are_weights = [_WEIGHT.fullmatch(word) is not None for word in words]
    paths = [
        (word, words[index - 1] if index and are_weights[index - 1] else "")
        for index, word in enumerate(words)
        if not are_weights[index]
    ]
    is_list = any(are_weights) or all(_ending(path) for path, _ in paths)
    return paths if paths and is_list else one


def _dataset_paths(values: dict[str, Any], absolute: Callable[[str], str]) -> tuple[tuple[str, ...], str]:
    if "dataset_path" not in values:
        listed = (path for source in values["dataset"]["configs"] for path in source["path"])
        return tuple(map(absolute, listed)), ""
    found: list[str] = []
    notes = []
    for written in values["dataset_path"]:
        paths = _weighted_paths(written, absolute(written))
        found += (absolute(path) for path, _ in paths)
        if paths != [(written, "")]:
            shown = ", ".join(
                f"'{path}'" + (f" (weight {weight})" if weight else "") for path, weight in paths
            )
            count = counted(len(paths), "path")
            notes.append(f"dataset_path '{written}' was read as {count}: {shown}")
    return tuple(found), "; ".join(notes)


def _checkpoint(values: dict[str, Any]) -> CheckpointSettings:
    values = dict(values)
    if values.pop("enabled", True) is False:
        values["strategy"] = CheckpointStrategy.DISABLED
    return CheckpointSettings(**values)


def _partition(values: dict[str, Any]) -> PartitionSettings:
    is_counted = "size" in values or "num_of_partitions" in values
    is_sized = "target_size_mb" in values or "max_size_mb" in values
    if values.get("mode") is PartitionMode.MANUAL and not is_counted and not is_sized:
        values = {**values, "num_of_partitions": _USUAL_PARTITIONS}
    return PartitionSettings(**values)


# ---- paths ------------------------------------------------------------------------------------------------


def _resolved_paths(values: dict[str, Any], cwd: str) -> tuple[str, dict[str, str]]:
    """Returns the folder of the jobs and the other paths; {job_id} is filled in later."""
    work_dir, export = values.get("work_dir"), values.get("export_path")
    if work_dir is None:
        work_dir = _folder_of(export) if export is not None else os.path.join("outputs", values["name"])
    work_dir = _absolute(work_dir, cwd)
    written = {name: values[name] for name in _PATHS if name in values}
    if export is None:
        ending = f".{values.get('export_type', 'jsonl')}"
        written["export_path"] = os.path.join(job_dir_in(work_dir, JOB_ID), f"{values['name']}{ending}")
    return work_dir, {
        name: _absolute(path.replace(WORK_DIR, work_dir), cwd) for name, path in written.items()
    }


def _folder_of(export_path: str) -> str:
    """Returns the folder of the jobs if only the export has a path."""
    folder = os.path.dirname(export_path) or "."
    parts = folder.split("/")
    return "/".join(parts[: parts.index(JOB_ID) + 1]) if JOB_ID in parts else folder


def _absolute(path: str, cwd: str) -> str:
    return os.path.normpath(os.path.join(cwd, os.path.expanduser(path)))


def _ending(path: str) -> str:
    return os.path.splitext(path)[1].lower()


def _path_problems(values: dict[str, Any]) -> list[Note]:
    problems: list[Note] = [*_addresses(values), *_unknown_placeholders(values)]
    if len(_delimiter(values).encode()) > 1:
        problems.append((("load_dataset_kwargs",), "delimiter in load_dataset_kwargs must be one character"))
    work_dir = values.get("work_dir", "")
    if JOB_ID in work_dir and os.path.basename(work_dir.rstrip("/")) != JOB_ID:
        problems.append((("work_dir",), f"work_dir must have {JOB_ID} as its last part, or not at all"))
    if WORK_DIR in work_dir:
        problems.append((("work_dir",), f"work_dir cannot refer to {WORK_DIR}, which is itself"))
    export = values.get("export_path")
    if values.get("work_dir") is None and export is not None and WORK_DIR in export:
        problems.append((("export_path",), f"export_path refers to {WORK_DIR}, but there is no work_dir"))
    if any(JOB_ID in path for path in values.get("dataset_path", ())):
        problems.append((("dataset_path",), f"dataset_path cannot have {JOB_ID}: a new job has no data yet"))
    if export is not None and "export_type" not in values and _ending(export) not in _FORMATS:
        problems.append((("export_path",), _unknown_format(export)))
    return problems


def _addresses(values: dict[str, Any]) -> Iterator[Note]:
    """Rejects URLs, which would be taken for file names."""
    read = [
        (("dataset_path", path_keys), path) for path_keys, path in enumerate(values.get("dataset_path", ()))
    ]
    written: list[tuple[Path, str]] = [((name,), values[name]) for name in _WRITTEN if name in values]
    for path_keys, path in [*read, *written]:
        if _ADDRESS.match(path):
            yield path_keys, f"{path_keys[0]}: {path} is a URL; only local files can be used"


def _unknown_placeholders(values: dict[str, Any]) -> Iterator[Note]:
    known = (WORK_DIR, JOB_ID)
    for name in _WRITTEN:
        for found in _PLACEHOLDER.findall(values.get(name) or ""):
            if found not in known:
                near = nearest_word(found.strip("{}"), [each.strip("{}") for each in known])
                hint = f"did you mean {{{near}}}?" if near else f"use {WORK_DIR} or {JOB_ID}"
                yield (name,), f"{name} has {found}, an unknown placeholder; {hint}"


def _unknown_format(export: str) -> str:
    ending = _ending(export)
    message = f"'{ending}' is not a supported export format" if ending else f"'{export}' has no extension"
    return f"export_path: {message}; use .jsonl, .json or .parquet, or set export_type"


def _job_problems(values: dict[str, Any], given: Mapping[str, Any]) -> list[Note]:
    job_id, resume = values.get("job_id"), values.get("resume")
    if job_id and resume and job_id != resume and not given.get("resume"):
        return [(("resume",), f"resume and job_id name different jobs: '{resume}' and '{job_id}'")]
    names = {call.name for call in values["process"]}
    checkpoint = values.get("checkpoint", {})
    unknown = [name for name in checkpoint.get("op_names", ()) if name not in names]
    return [
        (("checkpoint", "op_names"), f"op_names in checkpoint has '{name}', which is not in process")
        for name in unknown
    ]


# ---- readers ----------------------------------------------------------------------------------------------


@cache
def _readers() -> dict[str, Reader]:
    return section_readers(RECIPE_SECTIONS, {})
