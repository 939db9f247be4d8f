"""Fields that somebody's function added to rows of tables. A column would need one type for all of them, and
no partition knows what the others add: each row keeps its own (as msgpack, in the column ADDED) until the
export, which has seen them all."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pyarrow as pa

from joblens.data.base.rows import ADDED, with_column

Row = dict[str, Any]


def plain_value(value: Any) -> Any:
    """Numbers and arrays of numpy as Python's own; nothing else that is no JSON can be kept."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a value of the type {type(value).__name__} cannot be kept")


_encode = msgspec.msgpack.Encoder(enc_hook=plain_value).encode
_decode = msgspec.msgpack.Decoder(dict[str, Any]).decode


def added_to(batch: Any) -> list[Row]:
    """What each row has besides its columns."""
    if ADDED not in batch.schema.names:
        return [{} for _ in range(batch.num_rows)]
    return [{} if packed is None else _decode(packed) for packed in batch.column(ADDED).to_pylist()]


def whole_rows(batch: Any) -> list[Row]:
    """All fields of each row."""
    if ADDED not in batch.schema.names:
        return list(batch.to_pylist())
    rows: list[Row] = batch.drop_columns([ADDED]).to_pylist()
    return [row | added for row, added in zip(rows, added_to(batch), strict=True)]


def with_added(batch: Any, new: Mapping[int, Row]) -> tuple[Any, dict[int, str]]:
    """The batch with all that the rows at these places have besides their columns, and why some of it cannot
    be kept. The column is there afterwards whatever there was to add: pieces of a batch are to have the same
    columns."""
    values: list[bytes | None] = [None] * batch.num_rows
    if ADDED in batch.schema.names:
        if not new:
            return batch, {}
        values = batch.column(ADDED).to_pylist()
    wrong: dict[int, str] = {}
    for place, fields in new.items():
        try:
            values[place] = _encode(fields) if fields else None
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            wrong[place] = f"{type(error).__name__}: {error}"
    return with_column(batch, ADDED, pa.array(values, pa.large_binary())), wrong
