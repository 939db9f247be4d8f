from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from joblens.data.base.operator import Filter
from joblens.data.rows.ranges import within
from joblens.data.texts.bits import count_rows
from joblens.data.texts.special_characters import special_characters
from joblens.data.texts.text_view import CharacterClasses, text_of

_SPECIAL = 1


@cache
def _classes() -> CharacterClasses:
    special = special_characters()
    return CharacterClasses(lambda character: _SPECIAL if character in special else 0)


class SpecialCharactersFilter(Filter):
    """Keeps texts by the share of punctuation, digits, spaces, symbols and emoji among their characters."""

    name = "special_characters_filter"

    def __init__(self, min_ratio: float = 0.0, max_ratio: float = 0.25) -> None:
        self.min_ratio = min_ratio
        self.max_ratio = max_ratio

    def stats(self, batch: Any) -> dict[str, Any]:
        text = text_of(batch, self.text_key)
        found = count_rows(_classes().bits(text, _SPECIAL), text.offsets)
        return {"special_char_ratio": pa.array(found / np.maximum(text.lengths, 1), pa.float64())}

    def keep(self, stats: dict[str, Any]) -> Any:
        return within(self, stats["special_char_ratio"], self.min_ratio, self.max_ratio)
