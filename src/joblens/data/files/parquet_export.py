"""Parquet export: parts, and joining them."""

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from joblens.data.base.manifests import digest_of_file
from joblens.data.files.parquet_schema import (
    PartManifest,
    Shape,
    ShapeFold,
    rows_of_lines,
    table_of_batch,
    table_of_rows,
)
from joblens.data.files.partition_rows import batches_of
from joblens.data.rows.batch import ADDED, added_to
from joblens.files.atomic import atomic_file

_LINES_AT_ONCE = 4096
_BYTES_AT_ONCE = 1 << 20  # lines, or rows of a table, converted to Python values at a time
# Uncompressed bytes per row group; a writer needs four times as much. Independent of the memory budget, so
# that exports are reproducible.
_GROUP_BYTES = 8 << 20
_GROUP_ROWS = 1 << 16


def write_table_part(batches: Iterable[Any], path: str) -> PartManifest:
    """Writes rows that are columns already, in batches, at least one."""
    following = iter(batches)
    first = next(following)
    fold, rows, size = ShapeFold(), 0, 0
    with atomic_file(path) as part:
        with open(part, "wb") as file, pq.ParquetWriter(file, first.schema, compression="lz4") as writer:
            for batch in itertools.chain([first], following):
                writer.write_batch(
                    batch, row_group_size=_rows_within(_GROUP_BYTES, batch.nbytes, batch.num_rows)
                )
                _add_shape(fold, batch)
                rows, size = rows + batch.num_rows, size + batch.nbytes
        digest = digest_of_file(part)
    return PartManifest(
        path=path,
        format="parquet",
        rows=rows,
        size_bytes=os.path.getsize(path),
        digest=digest,
        content_bytes=size,
        shape=fold.shape(),
    )


def _rows_within(most_bytes: int, size: int, rows: int) -> int:
    """Returns how many rows of this mean size fit, as a power of two: small differences do not matter."""
    fitting = max(1, int(most_bytes * rows / max(1, size)))
    return min(_GROUP_ROWS, 1 << (fitting.bit_length() - 1))


def _add_shape(fold: ShapeFold, batch: Any) -> None:
    """Adds the types of columns, and of fields that are not columns yet."""
    for field in batch.schema:
        if field.name != ADDED:
            fold.widen(field.name, field.type)
    if ADDED in batch.schema.names:
        for first in range(0, batch.num_rows, _LINES_AT_ONCE):
            fold.add(added_to(batch.slice(first, _LINES_AT_ONCE)))


def shape_of_lines(path: str) -> Shape:
    fold = ShapeFold()
    for rows in _decoded(path):
        fold.add(rows)
    return fold.shape()


def write_shards(parts: Sequence[PartManifest], paths: Sequence[str], counts: Sequence[int]) -> None:
    """Writes the rows of all parts into files of so many rows each, with one common schema."""
    fold = ShapeFold()
    for part in parts:
        fold.add_shape(part.shape)
    schema, mixed = fold.schema()
    rows = sum(part.rows for part in parts)
    size = sum(part.content_bytes for part in parts)
    group = _rows_within(_GROUP_BYTES, size, rows)
    tables = _Tables(_tables(parts, schema, mixed), schema)
    for path, count in zip(paths, counts, strict=True):
        with (
            open(path, "wb") as file,
            pq.ParquetWriter(file, schema, compression="snappy") as writer,
        ):
            remaining = count
            while remaining:
                table = tables.take(min(group, remaining))
                writer.write_table(table, row_group_size=group)
                remaining -= table.num_rows


def _tables(parts: Sequence[PartManifest], schema: Any, mixed: frozenset[str]) -> Iterator[Any]:
    for part in parts:
        if part.format == "parquet":
            for batch in batches_of(part.path, _rows_within(_BYTES_AT_ONCE, part.content_bytes, part.rows)):
                yield table_of_batch(batch, schema, mixed)
        else:
            for rows in _decoded(part.path):
                yield table_of_rows(rows, schema, mixed)


class _Tables:
    """Regroups tables of any length into tables of the given length."""

    def __init__(self, source: Iterator[Any], schema: Any) -> None:
        self._source = source
        self._rest = schema.empty_table()

    def take(self, count: int) -> Any:
        waiting = [self._rest]
        have = self._rest.num_rows
        while have < count:
            more = next(self._source)
            waiting.append(more)
            have += more.num_rows
        table = pa.concat_tables(waiting)
        self._rest = table.slice(count)
        return table.slice(0, count)


def _decoded(path: str) -> Iterator[list[dict[str, Any]]]:
    with open(path, "rb") as file:
        lines: list[bytes] = []
        size = 0
        for line in file:
            lines.append(line)
            size += len(line)
            if len(lines) == _LINES_AT_ONCE or size >= _BYTES_AT_ONCE:
                yield list(rows_of_lines(lines))
                lines, size = [], 0
        if lines:
            yield list(rows_of_lines(lines))
