"""Character filters: share of alphanumeric or special characters."""

import sys
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from joblens.data.base.operator import Filter
from joblens.data.rows.ranges import refuse_tokenization, within
from joblens.data.texts.text_view import CharacterClasses, count_rows, text_of
from joblens.data.texts.words import special_characters

_ALPHANUMERIC = 1


@cache
def _alphanumeric() -> CharacterClasses:
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
        found = count_rows(_alphanumeric().bits(text, _ALPHANUMERIC), text.offsets)
        return {"alnum_ratio": pa.array(found / np.maximum(text.lengths, 1), pa.float64())}

    def keep(self, stats: dict[str, Any]) -> Any:
        return within(self, stats["alnum_ratio"], self.min_ratio, self.max_ratio)


_SPECIAL = 1


@cache
def _special() -> CharacterClasses:
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
        found = count_rows(_special().bits(text, _SPECIAL), text.offsets)
        return {"special_char_ratio": pa.array(found / np.maximum(text.lengths, 1), pa.float64())}

    def keep(self, stats: dict[str, Any]) -> Any:
        return within(self, stats["special_char_ratio"], self.min_ratio, self.max_ratio)
