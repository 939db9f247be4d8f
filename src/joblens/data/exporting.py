"""Rows into the export: each partition writes its part, and the parts are put together."""

from collections.abc import Collection, Sequence
from typing import Any

from msgspec import Struct

from joblens.data.rows import Rows
from joblens.model.recipe import RecipePlan


class PartManifest(Struct, frozen=True, kw_only=True):
    """What a finished part is: with its size and digest it can be told from a torn one."""

    path: str
    rows: int
    size_bytes: int
    digest: str  # xxh3-128 of the file
    shape: dict[str, Any] = {}  # of JSON rows on their way to Parquet: what was seen in each field


class Export(Struct, frozen=True, kw_only=True):
    paths: tuple[str, ...]
    rows: int
    size_bytes: int


def write_part(
    rows: Rows, plan: RecipePlan, path: str, changed: Collection[str] | None = None
) -> PartManifest:
    """`changed`: the columns that operators may have changed since the rows were read; None: any. The file
    is in place, whole, when this returns."""
    raise NotImplementedError


def is_whole(part: PartManifest) -> bool:
    """The file is there and is the one that was written."""
    raise NotImplementedError


def assemble(plan: RecipePlan, parts: Sequence[PartManifest]) -> Export:
    """Puts the parts, in their order, at the export path: one file or shards, in place only when whole."""
    raise NotImplementedError
