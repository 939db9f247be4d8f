"""A partition into rows."""

from collections.abc import Callable, Sequence
from typing import Any

from joblens.data.rejects import Reject
from joblens.data.rows import Rows
from joblens.model.recipe import Partition


def read_partition(partition: Partition, columns: Sequence[str], reject: Callable[[Reject], None]) -> Rows:
    """Rows of JSON have `columns` as large_string and `__line__` (large_binary, with its line end, always
    one); rows of Parquet have all their columns. A row that is broken, or has no text in one of
    `columns`, is rejected and has no id. The same partition always gives the same rows."""
    raise NotImplementedError


def places_of(partition: Partition, columns: Sequence[str], ids: Sequence[int]) -> list[Any]:
    """For each of the ids a Reject without reason, operator and row: where the row came from. Reads the
    partition again, so it is for the few rows that an operator could not work on."""
    raise NotImplementedError
