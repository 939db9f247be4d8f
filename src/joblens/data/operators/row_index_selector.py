"""Rows numbered over the whole dataset, as `index_key` of an operator asks for."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from joblens.data.base.operator import GlobalOperator, Signatures
from joblens.data.rows.partition import PartitionState
from joblens.data.rows.row_changes import Change, decoded_rows, put_back


class RowIndexSelector(GlobalOperator):
    """Keeps all rows, and numbers them from 0 in the field `index_key`. Does nothing where a row has that
    field already. Every operator with the parameter `index_key` has this one before it."""

    name = "row_index_selector"
    sees_whole_rows = True

    def __init__(self, *, index_key: str) -> None:
        if not index_key:
            raise ValueError("'index_key' is empty; it names the field for the number")
        self.index_key = index_key

    def columns(self) -> tuple[str, ...]:
        return ()

    def signatures(self, batch: Any) -> Any:
        """Whether each row has the field."""
        is_there = [self.index_key in row for row in decoded_rows(batch, [self.index_key])]
        return pa.RecordBatch.from_arrays([pa.array(is_there, pa.bool_())], names=["is_there"])

    def decide(self, parts: Sequence[Signatures], *, budget_bytes: int, scratch: str) -> Iterable[Any]:
        return (pa.array(np.ones(part.rows, np.bool_)) for part in parts)

    def first_numbers(self, parts: Sequence[Signatures]) -> list[int] | None:
        if any(part.batch.column(0).true_count for part in parts):
            return None
        return list(itertools.accumulate((part.rows for part in parts[:-1]), initial=0))

    def number(self, state: PartitionState, first: int) -> None:
        """Writes the numbers into the rows of a partition."""
        batch = state.with_lines()
        changes = {place: Change({}, {self.index_key: first + place}) for place in range(batch.num_rows)}
        state.replace(put_back(batch, changes))
