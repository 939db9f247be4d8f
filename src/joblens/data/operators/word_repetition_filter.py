from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa

from joblens.data.base.operator import Filter
from joblens.data.rows.ranges import within
from joblens.data.texts.repetition import find_repeats, hashed_words, parts_of, word_sequence_keys
from joblens.data.texts.text_view import Text, text_of
from joblens.data.texts.tokenization import refuse_tokenization

_GROUP = 1 << 20  # bytes of rows that are looked at together


class WordRepetitionFilter(Filter):
    """Keeps texts by the share of sequences of `rep_len` words that occur more than once."""

    name = "word_repetition_filter"

    def __init__(
        self,
        *,
        lang: str = "en",
        tokenization: bool = False,
        rep_len: Annotated[int, msgspec.Meta(ge=1)] = 10,
        min_ratio: float = 0.0,
        max_ratio: float = 0.5,
    ) -> None:
        self.lang = lang
        self.tokenization = tokenization
        self.rep_len = rep_len
        self.min_ratio = min_ratio
        self.max_ratio = max_ratio

    def check(self) -> None:
        refuse_tokenization(self.name, is_wanted=self.tokenization)

    def stats(self, batch: Any) -> dict[str, Any]:
        text = text_of(batch, self.text_key)
        parts = [text.array.slice(first, end - first) for first, end in text.groups(_GROUP)]
        ratios = [self._ratios(Text(part)) for part in parts]
        return {"word_rep_ratio": pa.array(np.concatenate([np.zeros(0), *ratios]), pa.float64())}

    def _ratios(self, text: Text) -> Any:
        words = hashed_words(text)
        counts = np.maximum(words.counts - self.rep_len + 1, 0)
        starts = np.cumsum(words.counts) - words.counts
        keys = parts_of(word_sequence_keys(words.hashes, self.rep_len), starts, counts)
        found = find_repeats(keys, counts)
        return np.bincount(found.rows, weights=found.times, minlength=len(counts)) / np.maximum(counts, 1)

    def keep(self, stats: dict[str, Any]) -> Any:
        return within(self, stats["word_rep_ratio"], self.min_ratio, self.max_ratio)
