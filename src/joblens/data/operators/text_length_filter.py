import sys
from typing import Any

import pyarrow as pa

from joblens.data.base.operator import Filter
from joblens.data.rows.ranges import within
from joblens.data.texts.text_view import text_of


class TextLengthFilter(Filter):
    """Keeps texts of so many characters."""

    name = "text_length_filter"

    def __init__(self, min_len: int = 10, max_len: int = sys.maxsize) -> None:
        self.min_len = min_len
        self.max_len = max_len

    def stats(self, batch: Any) -> dict[str, Any]:
        return {"text_len": pa.array(text_of(batch, self.text_key).lengths, pa.int64())}

    def keep(self, stats: dict[str, Any]) -> Any:
        return within(self, stats["text_len"], self.min_len, self.max_len)
