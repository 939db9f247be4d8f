import sys
from typing import Any

import pyarrow as pa

from joblens.data.base.operator import Filter
from joblens.data.rows.ranges import within
from joblens.data.texts.bits import count_rows
from joblens.data.texts.text_view import text_of
from joblens.data.texts.tokenization import refuse_tokenization
from joblens.data.texts.words import word_starts


class WordsNumFilter(Filter):
    """Keeps texts of so many words. A word of special characters only is none."""

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
