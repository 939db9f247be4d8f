"""Parquet files and Arrow tables of rows. The only module that knows pyarrow."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from joblens.model.errors import MissingExtra, how_to_install

_ROWS_A_GROUP = 50_000


def write_parquet(path: str, kinds: Mapping[str, str], rows: Iterable[Sequence[Any]]) -> int:
    """Writes rows;
    `kinds` maps column names to 'int', 'float', 'text', 'bool' or 'time' (µs UTC). Returns the count.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtra(
            "Parquet needs pyarrow, which is not installed", hint=how_to_install("data")
        ) from error
    types = {
        "int": pa.int64(),
        "float": pa.float64(),
        "text": pa.string(),
        "bool": pa.bool_(),
        "time": pa.timestamp("us", tz="UTC"),
    }
    schema = pa.schema([(name, types[kind]) for name, kind in kinds.items()])
    remaining = iter(rows)
    written = 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        while True:
            group = list(islice(remaining, _ROWS_A_GROUP))
            if not group and written:
                return written
            columns = list(zip(*group, strict=True)) if group else [()] * len(kinds)
            arrays = [
                pa.array(column, type=field.type) for column, field in zip(columns, schema, strict=True)
            ]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
            written += len(group)
            if not group:
                return 0


def integer_table(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[str], instants: Mapping[str, str]
) -> Any:
    """Returns an Arrow table. `instants`: further timestamp columns, each from a column of µs UTC."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise MissingExtra(
            "an Arrow table needs pyarrow, which is not installed", hint=how_to_install("data")
        ) from error
    arrays = {name: pa.array([row[name] for row in rows], type=pa.int64()) for name in columns}
    moment = pa.timestamp("us", tz="UTC")
    stamps = {name: arrays[column].cast(moment) for name, column in instants.items()}
    return pa.table({**stamps, **arrays})


def arrow_stream(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> bytes:
    """Rows as an Arrow IPC stream, with types found from the values; a column of several kinds is text."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise MissingExtra(
            "Arrow output needs pyarrow, which is not installed", hint=how_to_install("data")
        ) from error
    arrays = []
    for at in range(len(columns)):
        values = [row[at] for row in rows]
        try:
            arrays.append(pa.array(values))
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            arrays.append(pa.array([None if value is None else str(value) for value in values]))
    table = pa.Table.from_arrays(arrays, names=list(columns))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
