"""Rows of integers as an Arrow table."""

from collections.abc import Mapping, Sequence
from typing import Any

from joblens.model.errors import MissingExtra, how_to_install


def integer_table(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[str], instants: Mapping[str, str]
) -> Any:
    """`instants` names further columns: timestamps made from a column of microseconds UTC."""
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
