import sys
from typing import Any

import numpy as np
import pyarrow as pa

from joblens.data.base.operator import Filter
from joblens.data.rows.ranges import within
from joblens.data.texts.lines import count_lines
from joblens.data.texts.text_view import text_of


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
