import sys
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from joblens.data.base.operator import Filter
from joblens.data.rows.ranges import within
from joblens.data.texts.bits import count_rows
from joblens.data.texts.text_view import CharacterClasses, text_of
from joblens.data.texts.tokenization import refuse_tokenization

_ALPHANUMERIC = 1


@cache
def _classes() -> CharacterClasses:
    return CharacterClasses(lambda character: _ALPHANUMERIC if character.isalnum() else 0)


class AlphanumericFilter(Filter):
    """Keeps texts by the share of letters and digits among their characters."""

    name = "alphanumeric_filter"

    def __init__(
        self, *, tokenization: bool = False, min_ratio: float = 0.25, max_ratio: float = sys.maxsize
    ) -> None:
        self.tokenization = tokenization
        self.min_ratio = min_ratio
        self.max_ratio = max_ratio

    def check(self) -> None:
        refuse_tokenization(self.name, is_wanted=self.tokenization)

    def stats(self, batch: Any) -> dict[str, Any]:
        text = text_of(batch, self.text_key)
        found = count_rows(_classes().bits(text, _ALPHANUMERIC), text.offsets)
        return {"alnum_ratio": pa.array(found / np.maximum(text.lengths, 1), pa.float64())}

    def keep(self, stats: dict[str, Any]) -> Any:
        return within(self, stats["alnum_ratio"], self.min_ratio, self.max_ratio)
