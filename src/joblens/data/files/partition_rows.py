"""Reading of partitions from Parquet or JSON lines."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from joblens.data.base.manifests import too_short
from joblens.data.files.json_lines import origins_of_rows, read_lines
from joblens.data.files.rejects import Reject
from joblens.data.rows.batch import Rows, joined_batches
from joblens.model.recipes.recipe import Partition, Slice

# Metadata of pieces that lack some rows of their file: names the column with the original row numbers.
ROW_NUMBERS = b"joblens.row_numbers"


def read_rows(
    piece: Slice, columns: Sequence[str], reject: Callable[[Reject], None], needed: Sequence[str] = ()
) -> Any:
    """Returns a RecordBatch of all columns, those in `columns` as large_string."""
    batch, numbers = _numbered(piece)
    reasons = _reasons(batch, columns, needed)
    for row, reason in sorted(reasons.items()):
        content = batch.slice(row, 1).to_pylist()[0]
        position = int(numbers[row])
        reject(Reject(source=piece.origin or piece.path, position=position, reason=reason, row=content))
    if reasons:
        stays = np.ones(batch.num_rows, dtype=bool)
        stays[list(reasons)] = False
        batch = batch.filter(pa.array(stays))
    return _with_texts(batch, columns)


def readable_rows(piece: Slice, columns: Sequence[str], needed: Sequence[str] = ()) -> Any:
    """Returns the row numbers in the file, from 1, of the rows that `read_rows` returns."""
    batch, numbers = _numbered(piece)
    return np.delete(numbers, list(_reasons(batch, columns, needed)))


def _numbered(piece: Slice) -> tuple[Any, Any]:
    batch = _as_one_batch(_table(piece))
    name = (batch.schema.metadata or {}).get(ROW_NUMBERS, b"").decode()
    if piece.origin and name:
        return batch.drop_columns([name]), batch.column(name).to_numpy()
    return batch, piece.origin_row + np.arange(piece.start + 1, piece.end + 1)


def row_groups(path: str) -> list[tuple[int, int]]:
    """Returns rows and uncompressed bytes per row group."""
    with _parquet().ParquetFile(path) as file:
        groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
        return [(group.num_rows, group.total_byte_size) for group in groups]


def schema_of(path: str) -> Any:
    return _parquet().read_schema(path)


def _table(piece: Slice) -> Any:
    """Returns the rows of the slice; reads only their row groups."""
    with _parquet().ParquetFile(piece.path) as file:
        if file.metadata.num_rows < piece.end:
            raise too_short(piece)
        groups, skipped = groups_between(file, piece.start, piece.end)
        table = file.read_row_groups(groups, use_threads=False)
    return table.slice(piece.start - skipped, piece.end - piece.start)


def groups_between(file: Any, start: int, end: int) -> tuple[list[int], int]:
    """Returns the row groups of an open file that contain these rows, and the number of rows before them."""
    groups: list[int] = []
    first, skipped = 0, 0
    for number in range(file.num_row_groups):
        rows = file.metadata.row_group(number).num_rows
        if first + rows <= start:
            skipped = first + rows
        elif first < end:
            groups.append(number)
        first += rows
    return groups, skipped


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
        # Views cannot be filtered yet; other texts keep their type.
        is_wanted = names[at] in columns and not pa.types.is_large_string(array.type)
        if is_wanted or pa.types.is_string_view(array.type):
            arrays[at] = array.cast(pa.large_string())
        elif pa.types.is_binary_view(array.type):
            arrays[at] = array.cast(pa.large_binary())
    return pa.RecordBatch.from_arrays(arrays, names=names)


def batches_of(path: str, rows: int) -> Iterator[Any]:
    """Yields batches of at most so many rows."""
    with _parquet().ParquetFile(path, pre_buffer=False) as file:
        yield from file.iter_batches(rows, use_threads=False)


def _parquet() -> Any:
    """Imports Parquet on demand: it imports file systems and networking."""
    import pyarrow.parquet

    return pyarrow.parquet


def read_partition(
    partition: Partition,
    columns: Sequence[str],
    reject: Callable[[Reject], None],
    needed: Sequence[str] = (),
) -> Rows:
    """Reads a partition. Rows that cannot be parsed or lack a required field are rejected and get no id.

    Rows of JSON have `columns` as large_string, and `__line__` (large_binary, always with its line end); rows
    of Parquet have all their columns. `columns` must be text, `needed` must not be null. A partition always
    yields the same rows.
    """
    batches = [_read_slice(piece, columns, reject, needed) for piece in partition.slices]
    batch = batches[0] if len(batches) == 1 else joined_batches(batches)
    return Rows(batch, pa.array(np.arange(batch.num_rows, dtype=np.uint32)))


def origins_of(
    partition: Partition, columns: Sequence[str], ids: Sequence[int], needed: Sequence[str] = ()
) -> list[Reject]:
    """Returns for each id a Reject with the origin of the row, without reason, operator and row.

    Reads the partition again, so use it only for the few rows that an operator failed on.
    """
    origins: dict[int, Reject] = {}
    before = 0
    for piece in partition.slices:
        count = _read_slice(piece, columns, lambda _: None, needed).num_rows
        here = [number for number in ids if before <= number < before + count]
        if here:
            rows = [number - before for number in here]
            found = _values_in(piece, columns, rows, needed)
            origins |= dict(zip(here, found, strict=True))
        before += count
    return [origins[number] for number in ids]


def _values_in(
    piece: Slice, columns: Sequence[str], rows: Sequence[int], needed: Sequence[str]
) -> list[Reject]:
    if piece.format == "jsonl":
        return origins_of_rows(piece, columns, needed)(rows)
    numbers = readable_rows(piece, columns, needed)
    source = piece.origin or piece.path
    return [Reject(source=source, position=int(numbers[row]), reason="") for row in rows]


def _read_slice(
    piece: Slice, columns: Sequence[str], reject: Callable[[Reject], None], needed: Sequence[str]
) -> Any:
    if piece.format == "jsonl":
        return read_lines(piece, columns, reject, needed)
    return read_rows(piece, columns, reject, needed)
