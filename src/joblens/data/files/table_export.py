"""Rows that came as tables, as JSON lines, and the numbers of filters beside them."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from joblens.data.base.rows import ADDED, LINE, STATS_PREFIX
from joblens.data.files.line_export import STATS_FIELD
from joblens.data.rows.added_fields import added_to

_ROWS_AT_ONCE = 4096
_encoder = msgspec.json.Encoder(enc_hook=str)


def json_of_table(batch: Any, stats: Sequence[str]) -> Iterator[bytes]:
    """Lines of all rows, in blocks."""
    batch = with_stats_nested(batch, stats)
    readable = [_readable(array) for array in batch.columns]
    batch = pa.RecordBatch.from_arrays(readable, names=batch.schema.names)
    for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
        yield _encoder.encode_lines(_whole_rows(batch.slice(start, _ROWS_AT_ONCE)))


def _whole_rows(batch: Any) -> list[dict[str, Any]]:
    """With fields that are no columns, before the numbers of filters."""
    rows: list[dict[str, Any]] = batch.to_pylist()
    if ADDED not in batch.schema.names:
        return rows
    for row, added in zip(rows, added_to(batch), strict=True):
        del row[ADDED]
        row.update(added)
        if STATS_FIELD in row:
            row[STATS_FIELD] = row.pop(STATS_FIELD)
    return rows


def with_stats_nested(batch: Any, stats: Sequence[str]) -> Any:
    """Without the columns that are ours; the numbers that are kept as fields of one."""
    names = [name for name in batch.schema.names if name != LINE and not name.startswith(STATS_PREFIX)]
    arrays = [batch.column(name) for name in names]
    if stats:
        found = [batch.column(STATS_PREFIX + name) for name in stats]
        names.append(STATS_FIELD)
        arrays.append(pa.StructArray.from_arrays(found, names=list(stats)))
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _readable(array: Any) -> Any:
    """Python has no value for a billionth of a second: such times are written as Arrow writes them."""
    is_fine = pa.types.is_timestamp(array.type) and array.type.unit == "ns"
    return array.cast(pa.large_string()) if is_fine or pa.types.is_time64(array.type) else array
