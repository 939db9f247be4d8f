"""The rows of one partition between two operators."""

from typing import Any

import pyarrow as pa
from msgspec import Struct

# Rows that were read from JSON carry their line: fields that no operator asked for leave as they came, to
# the byte.
LINE = "__line__"
STATS_PREFIX = "__stats__."  # columns of numbers that filters computed, when the recipe keeps them
ADDED = "__added__"  # fields of rows of tables that are no columns
OWN_COLUMNS = (LINE, ADDED, "__ids__", "__changed__")  # and those beside the rows in whole states


class Rows(Struct, frozen=True, eq=False):
    """Columns in one piece each (a RecordBatch), text as large_string. `ids` says which row of the
    partition as it was read each one is; operators drop rows, and never reorder them."""

    batch: Any  # pa.RecordBatch
    ids: Any  # pa.UInt32Array

    @property
    def count(self) -> int:
        return int(self.batch.num_rows)

    def column(self, name: str) -> Any:
        return self.batch.column(name)


def rows_of(batch: Any) -> Rows:
    """As they were read."""
    return Rows(batch, pa.array(range(batch.num_rows), pa.uint32()))


def with_column(batch: Any, name: str, values: Any) -> Any:
    """The batch with that column instead of the one of that name, or behind the others."""
    names = list(batch.schema.names)
    arrays = list(batch.columns)
    if name in names:
        arrays[names.index(name)] = values
    else:
        names.append(name)
        arrays.append(values)
    return pa.RecordBatch.from_arrays(arrays, names=names)
