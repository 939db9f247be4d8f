"""A partition into rows."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from joblens.data.base.rows import Rows
from joblens.data.files.json_lines import places_of_rows, read_lines
from joblens.data.files.parquet_rows import read_rows, readable_rows
from joblens.data.files.rejects import Reject
from joblens.model.recipes.recipe import Partition, Slice


def read_partition(
    partition: Partition,
    columns: Sequence[str],
    reject: Callable[[Reject], None],
    needed: Sequence[str] = (),
) -> Rows:
    """Rows of JSON have `columns` as large_string and `__line__` (large_binary, with its line end, always
    one); rows of Parquet have all their columns. A row that is broken, or has no text in one of
    `columns`, or nothing in one of `needed`, is rejected and has no id. The same partition
    always gives the same rows."""
    batches = [_read_slice(piece, columns, reject, needed) for piece in partition.slices]
    batch = batches[0] if len(batches) == 1 else _joined(batches)
    return Rows(batch, pa.array(np.arange(batch.num_rows, dtype=np.uint32)))


def places_of(
    partition: Partition, columns: Sequence[str], ids: Sequence[int], needed: Sequence[str] = ()
) -> list[Reject]:
    """For each of the ids a Reject without reason, operator and row: where the row came from. Reads the
    partition again, so it is for the few rows that an operator could not work on."""
    places: dict[int, Reject] = {}
    before = 0
    for piece in partition.slices:
        count = _read_slice(piece, columns, lambda _: None, needed).num_rows
        here = [number for number in ids if before <= number < before + count]
        if here:
            rows = [number - before for number in here]
            found = _places_in(piece, columns, rows, needed)
            places |= dict(zip(here, found, strict=True))
        before += count
    return [places[number] for number in ids]


def _places_in(
    piece: Slice, columns: Sequence[str], rows: Sequence[int], needed: Sequence[str]
) -> list[Reject]:
    if piece.format == "jsonl":
        return places_of_rows(piece, columns, needed)(rows)
    numbers = readable_rows(piece, columns, needed)
    source = piece.origin or piece.path
    return [Reject(source=source, position=int(numbers[row]), reason="") for row in rows]


def _read_slice(
    piece: Slice, columns: Sequence[str], reject: Callable[[Reject], None], needed: Sequence[str]
) -> Any:
    if piece.format == "jsonl":
        return read_lines(piece, columns, reject, needed)
    return read_rows(piece, columns, reject, needed)


def _joined(batches: Sequence[Any]) -> Any:
    table = pa.Table.from_batches(batches).combine_chunks()
    found = table.to_batches()
    return found[0] if found else batches[0].slice(0, 0)
