"""Export of rows: each partition writes its part, parts are joined, files of earlier exports removed."""

import contextlib
import glob
import itertools
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import msgspec
import xxhash
from msgspec import Struct

from joblens.data.base.job_folder import JobFolder
from joblens.data.files.json_lines_export import json_of_table, lines_of, with_stats_nested
from joblens.data.files.parquet_schema import PartManifest, Shape, is_whole
from joblens.data.files.shards import copy_arrays, copy_lines, move_parts, put_back, shard_paths, shard_rows
from joblens.data.rows.batch import LINE, STATS_PREFIX, Rows
from joblens.files.atomic import atomic_file
from joblens.model.errors import InputError
from joblens.model.recipes.recipe import Recipe, RecipePlan


class _Earlier(Struct, frozen=True):
    asked_path: str
    paths: tuple[str, ...]


class _Manifest(Struct, frozen=True):
    export: _Earlier
    sizes: dict[str, int]


def remove_earlier(plan: RecipePlan, paths: Sequence[str]) -> None:
    """Removes the files of an earlier export, which would duplicate rows.

    Only unchanged files that a job in the same folder of jobs wrote to the same path.
    """
    current = {os.path.realpath(path) for path in (*paths, *(file.path for file in plan.inputs))}
    for earlier in _manifests(os.path.dirname(plan.job_dir)):
        if earlier.export.asked_path != plan.recipe.export_path:
            continue
        for path in earlier.export.paths:
            with contextlib.suppress(FileNotFoundError):
                if os.path.realpath(path) not in current and os.path.getsize(path) == earlier.sizes.get(path):
                    os.unlink(path)


def _manifests(folder: str) -> Iterator[_Manifest]:
    decoder = msgspec.json.Decoder(_Manifest)
    for job_dir in glob.glob(os.path.join(glob.escape(folder), "*", "")):
        own = JobFolder(job_dir)
        for path in (own.export_manifest, own.earlier_export):
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                with open(path, "rb") as file:
                    found = decoder.decode(file.read())
                yield found


__all__ = ["Export", "PartManifest", "assemble", "export_format", "is_whole", "write_part", "write_pieces"]

_FORMATS = {"jsonl": "jsonl", "json": "json", "ndjson": "jsonl", "parquet": "parquet"}


class Export(Struct, frozen=True, kw_only=True):
    paths: tuple[str, ...]
    rows: int
    size_bytes: int
    asked_path: str = ""  # export_path; the names of shards have only a part of it


def export_format(recipe: Recipe) -> str:
    """Returns jsonl, json (one array) or parquet.

    Raises InputError if neither recipe nor path names one of these.
    """
    written = recipe.export_type or os.path.splitext(recipe.export_path)[1]
    found = _FORMATS.get(written.lower().removeprefix("."))
    if found is None:
        raise InputError(
            f"export_path {recipe.export_path}: '{written}' is not a supported export format",
            hint="use the extension .jsonl, .json or .parquet, or set export_type",
        )
    return found


def part_ending(recipe: Recipe) -> str:
    """Returns the file extension of a partition's part."""
    return ".parquet" if export_format(recipe) == "parquet" else ".jsonl"


def write_part(
    rows: Rows, plan: RecipePlan, path: str, changed: Collection[str] | None = None
) -> PartManifest:
    """Writes the part atomically. `changed`: columns that operators may have changed; None: any."""
    return write_pieces([rows], plan, path, changed)


def write_pieces(
    pieces: Iterable[Rows], plan: RecipePlan, path: str, changed: Collection[str] | None = None
) -> PartManifest:
    """Writes rows that come in batches, at least one."""
    following = iter(pieces)
    first = next(following)
    every = itertools.chain([first], following)
    names = first.batch.schema.names
    is_parquet = export_format(plan.recipe) == "parquet"
    stats = [name.removeprefix(STATS_PREFIX) for name in names if name.startswith(STATS_PREFIX)]
    stats = stats if plan.recipe.keep_stats else []
    if LINE not in names and is_parquet:
        from joblens.data.files.parquet_export import write_table_part

        return write_table_part((with_stats_nested(each.batch, stats) for each in every), path)
    own = [name for name in names if name != LINE and not name.startswith(STATS_PREFIX)]
    changed_here = [name for name in own if changed is None or name in changed]
    count = 0

    def blocks() -> Iterator[Any]:
        nonlocal count
        for piece in every:
            count += piece.count
            if LINE in names:
                yield from lines_of(piece.batch, changed_here, stats)
            else:
                yield from json_of_table(piece.batch, stats)

    size, digest = _write_blocks(path, blocks())
    shape = Shape()
    if is_parquet:
        from joblens.data.files.parquet_export import shape_of_lines

        shape = shape_of_lines(path)
    return PartManifest(
        path=path,
        format="jsonl",
        rows=count,
        size_bytes=size,
        digest=digest,
        content_bytes=size,
        shape=shape,
    )


def _write_blocks(path: str, blocks: Iterable[Any]) -> tuple[int, str]:
    digest = xxhash.xxh3_128()
    size = 0
    with atomic_file(path) as part, open(part, "wb") as file:
        for block in blocks:
            file.write(block)
            digest.update(block)
            size += len(block)
    return size, digest.hexdigest()


def assemble(
    plan: RecipePlan, parts: Sequence[PartManifest], *, moved: str = "", keep: bool = True
) -> Export:
    """Joins the parts in order at the export path: one file or shards, replaced atomically.

    Unless they are to be kept, parts of lines are moved one by one to their position in the export. `moved`
    records the positions, so that a killed job can continue.
    """
    recipe = plan.recipe
    kind = export_format(recipe)
    total = sum(part.rows for part in parts)
    size = sum(part.content_bytes for part in parts)
    paths = shard_paths(recipe.export_path, kind, total, size, recipe.export_shard_bytes)
    if any(os.path.isdir(path) for path in paths):
        raise InputError(f"export_path {recipe.export_path} is a directory", hint="give a file name")
    os.makedirs(os.path.dirname(os.path.abspath(recipe.export_path)), exist_ok=True)
    being_written = [
        os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{plan.job_id}.partial")
        for path in paths
    ]
    counts = shard_rows(total, len(paths))
    # A process that dies leaves no partial file; flushing to disk is left to the system.
    if kind != "jsonl" or keep:
        put_back(parts, moved)
        _copy(kind, parts, being_written, counts)
        _rename(being_written, paths)
    else:
        move_parts(parts, paths, being_written, counts, moved)
        _rename(being_written, paths, some_are_there=True)
    remove_earlier(plan, paths)
    written = sum(os.path.getsize(path) for path in paths)
    return Export(paths=tuple(paths), rows=total, size_bytes=written, asked_path=recipe.export_path)


def _copy(kind: str, parts: Sequence[PartManifest], being_written: list[str], counts: list[int]) -> None:
    try:
        if kind == "parquet":
            from joblens.data.files.parquet_export import write_shards

            write_shards(parts, being_written, counts)
        else:
            copy = copy_arrays if kind == "json" else copy_lines
            copy([(part.path, part.rows) for part in parts], being_written, counts)
    except BaseException:
        _remove(being_written)
        raise


def _rename(being_written: Sequence[str], paths: Sequence[str], *, some_are_there: bool = False) -> None:
    """Renames files. Moved parts stay if this fails: there is no other copy."""
    try:
        for partial, path in zip(being_written, paths, strict=True):
            if not some_are_there or os.path.exists(partial):
                os.replace(partial, path)
    except BaseException:
        if not some_are_there:
            _remove(being_written)
        raise


def _remove(paths: Sequence[str]) -> None:
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
