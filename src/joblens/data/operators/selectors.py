"""Selectors: a random choice of rows, and row numbers."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from msgspec import Meta

from joblens.data.base.operator import GlobalOperator, Signatures
from joblens.data.rows.batch import Change, decoded_rows, put_back
from joblens.data.rows.partition import PartitionState
from joblens.data.texts.duplicates import alone, count_rows, masks, numbers, row_type

_AT_ONCE = 1 << 18


class RandomSelector(GlobalOperator):
    """Keeps `select_num` rows, or the share `select_ratio` of all; with both, whichever is less.

    Keeps all rows without either, or if the share is less than one row. Rows stay in order; none is repeated.
    The same `seed` selects the same rows from equally many.
    """

    name = "random_selector"

    def __init__(
        self,
        *,
        select_ratio: Annotated[float, Meta(ge=0, le=1)] | None = None,
        select_num: Annotated[int, Meta(ge=1)] | None = None,
        seed: Annotated[int, Meta(ge=0)] = 42,
    ) -> None:
        if select_ratio == 0 and select_num is None:
            raise ValueError("'select_ratio' 0 selects no rows; use a share above 0")
        self.select_ratio = select_ratio
        self.select_num = select_num
        self.seed = seed

    def columns(self) -> tuple[str, ...]:
        return ()

    def signatures(self, batch: Any) -> Any:
        """Returns no columns: only the number of rows matters."""
        return batch.select([])

    def decide(self, parts: Sequence[Signatures], *, budget_bytes: int, scratch: str) -> Iterable[Any]:
        count = count_rows(parts)
        count_to_keep = self._count_to_keep(count)
        if count_to_keep >= count:
            return (pa.array(np.ones(part.rows, np.bool_)) for part in parts)
        order = numbers(count, row_type(count), budget_bytes=budget_bytes, scratch=scratch, name="order")
        alone(order)
        np.random.default_rng(self.seed).shuffle(order)
        keep = numbers(count, np.bool_, budget_bytes=budget_bytes, scratch=scratch, name="keep")
        for start in range(0, count_to_keep, _AT_ONCE):
            keep[order[start : min(count_to_keep, start + _AT_ONCE)]] = True
        return masks(parts, keep)

    def _count_to_keep(self, count: int) -> int:
        if not self.select_ratio:
            return self.select_num or count
        share = int(self.select_ratio * count)
        return min(share, self.select_num or share) or count


class RowIndexSelector(GlobalOperator):
    """Keeps all rows and numbers them from 0 in the field `index_key`.

    Does nothing if a row has that field already. Inserted before every operator with the parameter
    `index_key`.
    """

    name = "row_index_selector"
    sees_whole_rows = True

    def __init__(self, *, index_key: str) -> None:
        if not index_key:
            raise ValueError("'index_key' is empty; set it to the name of the field for the number")
        self.index_key = index_key

    def columns(self) -> tuple[str, ...]:
        return ()

    def signatures(self, batch: Any) -> Any:
        """Returns whether each row has the field."""
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
        changes = {index: Change({}, {self.index_key: first + index}) for index in range(batch.num_rows)}
        state.replace(put_back(batch, changes))
