"""Plans and partitions for tests that read and write datasets."""

import os
from pathlib import Path
from typing import Any

from joblens.data.cutting import cut_file, join_slices, plan_partitions
from joblens.data.datasets import find_files
from joblens.data.reading import read_partition
from joblens.data.rejects import Reject
from joblens.data.rows import Rows
from joblens.data.tasks import CutFile
from joblens.model.recipe import Partition, PartitionSettings, Recipe, RecipePlan, Slice


def plan_for(
    export_path: object, target_bytes: int = 1 << 20, rows: int | None = None, **more: Any
) -> RecipePlan:
    recipe = Recipe(
        dataset_path=(),
        export_path=str(export_path),
        work_dir="",
        process=(),
        partition=PartitionSettings(size=rows),
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
    )


def whole(path: Path, kind: str = "jsonl") -> Partition:
    size = os.path.getsize(path)
    return Partition(id=0, slices=(Slice(path=str(path), format=kind, end=size),), size_bytes=size)


def read(partition: Partition, *columns: str) -> tuple[Rows, list[Reject]]:
    rejects: list[Reject] = []
    return read_partition(partition, columns or ("text",), rejects.append), rejects


def partitions_of(
    paths: list[Path], folder: Path, target_bytes: int, rows: int | None = None
) -> tuple[list[Partition], list[Reject]]:
    """As a job does it: what can be cut at once, then what has to be unpacked first."""
    rejects: list[Reject] = []
    files = find_files([str(path) for path in paths])
    partitions, uncut = plan_partitions(files, target_bytes=target_bytes, rows_per_partition=rows)
    plan = plan_for("x.jsonl", target_bytes, rows)
    slices: list[Slice] = []
    for number, piece in enumerate(uncut):
        slices += cut_file(
            CutFile("cut", number, piece), plan, str(folder / f"input_{number}"), rejects.append
        )
    return [*partitions, *join_slices(slices, target_bytes=target_bytes, first_id=len(partitions))], rejects
