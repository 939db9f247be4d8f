"""Plans and partitions for tests that read and write datasets."""

import os
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from joblens.data.base.messages import CutFile
from joblens.data.files.cutting import CutWish, cut_file, partitions_with_pieces, plan_partitions
from joblens.data.files.datasets import find_files
from joblens.data.files.input_stamps import stamp_inputs
from joblens.data.files.partition_rows import read_partition
from joblens.data.files.rejects import Reject
from joblens.data.rows.batch import Rows
from joblens.model.recipes.recipe import Partition, Recipe, RecipePlan, Slice


def plan_for(
    export_path: object, target_bytes: int = 1 << 20, wish: CutWish | None = None, **more: Any
) -> RecipePlan:
    recipe = Recipe(
        dataset_path=(),
        export_path=str(export_path),
        work_dir="",
        process=(),
        **more,
    )
    return RecipePlan(
        job_id="20260101_000000_abcdef",
        job_dir="",
        recipe=recipe,
        recipe_text="",
        stages=(),
        partitions=(),
        inputs=(),
        columns=("text",),
        checkpoint_after=(),
        workers=1,
        budget_bytes=1,
        target_bytes=target_bytes,
        rows_per_partition=wish.rows if wish else None,
        exact_partitions=wish.exactly if wish else None,
        least_partitions=wish.at_least if wish else 1,
    )


def whole(path: Path, kind: str = "jsonl") -> Partition:
    size = os.path.getsize(path)
    return Partition(id=0, slices=(Slice(path=str(path), format=kind, end=size),), size_bytes=size)


def read(partition: Partition, *columns: str) -> tuple[Rows, list[Reject]]:
    rejects: list[Reject] = []
    return read_partition(partition, columns or ("text",), rejects.append), rejects


def partitions_of(
    paths: list[Path],
    folder: Path,
    target_bytes: int,
    rows: int | None = None,
    exactly: int | None = None,
    at_least: int = 1,
) -> tuple[list[Partition], list[Reject]]:
    """As a job does it: what can be cut at once, then what has to be unpacked first."""
    rejects: list[Reject] = []
    files = find_files([str(path) for path in paths])
    wish = CutWish(target_bytes=target_bytes, rows=rows, exactly=exactly, at_least=at_least)
    partitions, uncut = plan_partitions(files, wish)
    plan = replace(
        plan_for("x.jsonl", target_bytes, wish),
        partitions=partitions,
        inputs=stamp_inputs([file.path for file in files]),
    )
    slices: list[Slice] = []
    for number, piece in enumerate(uncut):
        slices += cut_file(
            CutFile("cut", number, piece), plan, str(folder / f"input_{number}"), rejects.append
        )
    return list(partitions_with_pieces(plan, slices) if uncut else partitions), rejects
