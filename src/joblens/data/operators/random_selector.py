"""Some rows, chosen by chance, the same ones every time."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from msgspec import Meta

from joblens.data.base.operator import GlobalOperator, Signatures
from joblens.data.texts.clusters import alone, row_type
from joblens.data.texts.duplicates import count_rows, masks, numbers

_AT_ONCE = 1 << 18


class RandomSelector(GlobalOperator):
    """Keeps `select_num` rows, or the share `select_ratio` of all; where both are given, whichever is less;
    all where neither is, or where the share is less than one row. Rows stay in their order, and none comes
    twice. The same `seed` chooses the same rows of as many."""

    name = "random_selector"

    def __init__(
        self,
        *,
        select_ratio: Annotated[float, Meta(ge=0, le=1)] | None = None,
        select_num: Annotated[int, Meta(ge=1)] | None = None,
        seed: Annotated[int, Meta(ge=0)] = 42,
    ) -> None:
        if select_ratio == 0 and select_num is None:
            raise ValueError("'select_ratio' 0 would choose no row at all; give it a share above 0")
        self.select_ratio = select_ratio
        self.select_num = select_num
        self.seed = seed

    def columns(self) -> tuple[str, ...]:
        return ()

    def signatures(self, batch: Any) -> Any:
        """How many rows there are is all that counts."""
        return batch.select([])

    def decide(self, parts: Sequence[Signatures], *, budget_bytes: int, scratch: str) -> Iterable[Any]:
        count = count_rows(parts)
        wanted = self._wanted(count)
        if wanted >= count:
            return (pa.array(np.ones(part.rows, np.bool_)) for part in parts)
        order = numbers(count, row_type(count), budget_bytes=budget_bytes, scratch=scratch, name="order")
        alone(order)
        np.random.default_rng(self.seed).shuffle(order)
        keep = numbers(count, np.bool_, budget_bytes=budget_bytes, scratch=scratch, name="keep")
        for start in range(0, wanted, _AT_ONCE):
            keep[order[start : min(wanted, start + _AT_ONCE)]] = True
        return masks(parts, keep)

    def _wanted(self, count: int) -> int:
        if not self.select_ratio:
            return self.select_num or count
        share = int(self.select_ratio * count)
        return min(share, self.select_num or share) or count
