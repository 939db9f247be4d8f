"""Partition rows: a partition read from Parquet or JSON lines."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from joblens.data.base.manifests import too_short
from joblens.data.files.json_lines import places_of_rows, read_lines
from joblens.data.files.rejects import Reject
from joblens.data.rows.batch import Rows
from joblens.model.recipes.recipe import Partition, Slice

# Pieces that were cut out of a file without some of its rows say in their metadata which column holds the
# numbers that rows have in that file.
ROW_NUMBERS = b"joblens.row_numbers"


def read_rows(
    piece: Slice, columns: Sequence[str], reject: Callable[[Reject], None], needed: Sequence[str] = ()
) -> Any:
    """A RecordBatch of all columns, those in `columns` as large_string."""
    batch, numbers = _numbered(piece)
    reasons = _reasons(batch, columns, needed)
    for row, reason in sorted(reasons.items()):
        content = batch.slice(row, 1).to_pylist()[0]
        place = int(numbers[row])
        reject(Reject(source=piece.origin or piece.path, position=place, reason=reason, row=content))
    if reasons:
        stays = np.ones(batch.num_rows, dtype=bool)
        stays[list(reasons)] = False
        batch = batch.filter(pa.array(stays))
    return _with_texts(batch, columns)


def readable_rows(piece: Slice, columns: Sequence[str], needed: Sequence[str] = ()) -> Any:
    """Which rows of the file, from 1, those are that `read_rows` gives."""
    batch, numbers = _numbered(piece)
    return np.delete(numbers, list(_reasons(batch, columns, needed)))


def _numbered(piece: Slice) -> tuple[Any, Any]:
    batch = _as_one_batch(_table(piece))
    name = (batch.schema.metadata or {}).get(ROW_NUMBERS, b"").decode()
    if piece.origin and name:
        return batch.drop_columns([name]), batch.column(name).to_numpy()
    return batch, piece.origin_row + np.arange(piece.start + 1, piece.end + 1)


def row_groups(path: str) -> list[tuple[int, int]]:
    """Rows and bytes of each, as they are once they are unpacked."""
    with _parquet().ParquetFile(path) as file:
        groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
        return [(group.num_rows, group.total_byte_size) for group in groups]


def schema_of(path: str) -> Any:
    return _parquet().read_schema(path)


def _table(piece: Slice) -> Any:
    """The rows of the slice; only the row groups that they lie in are read."""
    with _parquet().ParquetFile(piece.path) as file:
        if file.metadata.num_rows < piece.end:
            raise too_short(piece)
        wanted, skipped = groups_between(file, piece.start, piece.end)
        table = file.read_row_groups(wanted, use_threads=False)
    return table.slice(piece.start - skipped, piece.end - piece.start)


def groups_between(file: Any, start: int, end: int) -> tuple[list[int], int]:
    """Numbers of the row groups of an open file that these rows lie in, and how many rows come before."""
    wanted: list[int] = []
    first, skipped = 0, 0
    for number in range(file.num_row_groups):
        rows = file.metadata.row_group(number).num_rows
        if first + rows <= start:
            skipped = first + rows
        elif first < end:
            wanted.append(number)
        first += rows
    return wanted, skipped


def _as_one_batch(table: Any) -> Any:
    table = table.combine_chunks()
    batches = table.to_batches()
    if batches:
        return batches[0]
    empty = [pa.array([], field.type) for field in table.schema]
    return pa.RecordBatch.from_arrays(empty, schema=table.schema)


def _reasons(batch: Any, columns: Sequence[str], needed: Sequence[str]) -> dict[int, str]:
    reasons: dict[int, str] = {}
    for name in (*columns, *needed):
        if name not in batch.schema.names:
            return dict.fromkeys(range(batch.num_rows), f"missing field '{name}'")
        column = batch.column(name)
        if name in columns and not is_text(column.type):
            return dict.fromkeys(range(batch.num_rows), f"field '{name}' is {column.type}, expected a string")
        if column.null_count:
            empty = np.flatnonzero(pc.is_null(column).to_numpy(zero_copy_only=False))
            is_null = "is null, expected a string" if name in columns else "is null"
            reasons |= dict.fromkeys(empty.tolist(), f"field '{name}' {is_null}")
    return reasons


def is_text(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _with_texts(batch: Any, columns: Sequence[str]) -> Any:
    arrays, names = list(batch.columns), list(batch.schema.names)
    for at, array in enumerate(arrays):
        # Views cannot be filtered yet; other texts stay in the type they came in.
        is_wanted = names[at] in columns and not pa.types.is_large_string(array.type)
        if is_wanted or pa.types.is_string_view(array.type):
            arrays[at] = array.cast(pa.large_string())
        elif pa.types.is_binary_view(array.type):
            arrays[at] = array.cast(pa.large_binary())
    return pa.RecordBatch.from_arrays(arrays, names=names)


def batches_of(path: str, rows: int) -> Iterator[Any]:
    """Of at most so many rows."""
    with _parquet().ParquetFile(path, pre_buffer=False) as file:
        yield from file.iter_batches(rows, use_threads=False)


def _parquet() -> Any:
    """Imported for those who have such files: it brings file systems and the network with it."""
    import pyarrow.parquet

    return pyarrow.parquet


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
