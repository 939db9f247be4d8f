import sys
from typing import Any

import pyarrow as pa

from joblens.data.base.operator import Filter
from joblens.data.rows.ranges import within
from joblens.data.texts.lines import longest_lines
from joblens.data.texts.text_view import text_of


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
