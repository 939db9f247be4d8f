"""Length filters: characters, words and lines of a text."""

import sys
from typing import Any

import numpy as np
import pyarrow as pa

from joblens.data.base.operator import Filter
from joblens.data.rows.ranges import refuse_tokenization, within
from joblens.data.texts.text_view import count_rows, text_of
from joblens.data.texts.words import count_lines, longest_lines, word_starts


class AverageLineLengthFilter(Filter):
    """Keeps texts by their length in characters divided by the number of their lines."""

    name = "average_line_length_filter"

    def __init__(self, min_len: int = 10, max_len: int = sys.maxsize) -> None:
        self.min_len = min_len
        self.max_len = max_len

    def stats(self, batch: Any) -> dict[str, Any]:
        text = text_of(batch, self.text_key)
        return {"avg_line_length": pa.array(text.lengths / np.maximum(count_lines(text), 1), pa.float64())}

    def keep(self, stats: dict[str, Any]) -> Any:
        return within(self, stats["avg_line_length"], self.min_len, self.max_len)


class MaximumLineLengthFilter(Filter):
    """Keeps texts by the number of characters of their longest line."""

    name = "maximum_line_length_filter"

    def __init__(self, min_len: int = 10, max_len: int = sys.maxsize) -> None:
        self.min_len = min_len
        self.max_len = max_len

    def stats(self, batch: Any) -> dict[str, Any]:
        lengths = longest_lines(text_of(batch, self.text_key))
        return {"max_line_length": pa.array(lengths, pa.int64())}

    def keep(self, stats: dict[str, Any]) -> Any:
        return within(self, stats["max_line_length"], self.min_len, self.max_len)


class TextLengthFilter(Filter):
    """Keeps texts by their number of characters."""

    name = "text_length_filter"

    def __init__(self, min_len: int = 10, max_len: int = sys.maxsize) -> None:
        self.min_len = min_len
        self.max_len = max_len

    def stats(self, batch: Any) -> dict[str, Any]:
        return {"text_len": pa.array(text_of(batch, self.text_key).lengths, pa.int64())}

    def keep(self, stats: dict[str, Any]) -> Any:
        return within(self, stats["text_len"], self.min_len, self.max_len)


class WordsNumFilter(Filter):
    """Keeps texts by their number of words. Words of only special characters do not count."""

    name = "words_num_filter"

    def __init__(
        self, *, lang: str = "en", tokenization: bool = False, min_num: int = 10, max_num: int = sys.maxsize
    ) -> None:
        self.lang = lang
        self.tokenization = tokenization
        self.min_num = min_num
        self.max_num = max_num

    def check(self) -> None:
        refuse_tokenization(self.name, is_wanted=self.tokenization)

    def stats(self, batch: Any) -> dict[str, Any]:
        text = text_of(batch, self.text_key)
        return {"num_words": pa.array(count_rows(word_starts(text), text.offsets), pa.int64())}

    def keep(self, stats: dict[str, Any]) -> Any:
        return within(self, stats["num_words"], self.min_num, self.max_num)
