from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa

from joblens.data.base.operator import Filter
from joblens.data.rows.ranges import within
from joblens.data.texts.repetition import Repeats, find_repeats, parts_of, sequence_keys
from joblens.data.texts.text_view import Text, text_of

_GROUP = 1 << 17  # bytes of rows that are looked at together: their keys stay in the processor's cache


class CharacterRepetitionFilter(Filter):
    """Keeps texts by how much of them the most frequent sequences of `rep_len` characters make up, of those
    that occur more than once, and at most as many as the square root of all different ones."""

    name = "character_repetition_filter"

    def __init__(
        self,
        *,
        rep_len: Annotated[int, msgspec.Meta(ge=1)] = 10,
        min_ratio: float = 0.0,
        max_ratio: float = 0.5,
    ) -> None:
        self.rep_len = rep_len
        self.min_ratio = min_ratio
        self.max_ratio = max_ratio

    def stats(self, batch: Any) -> dict[str, Any]:
        text = text_of(batch, self.text_key)
        ratios = [self._ratios(text, first, end) for first, end in text.groups(_GROUP)]
        return {"char_rep_ratio": pa.array(np.concatenate([np.zeros(0), *ratios]), pa.float64())}

    def keep(self, stats: dict[str, Any]) -> Any:
        return within(self, stats["char_rep_ratio"], self.min_ratio, self.max_ratio)

    def _ratios(self, text: Text, first: int, end: int) -> Any:
        content = text.data[text.offsets[first] : text.offsets[end]].tobytes()
        lengths = text.lengths[first:end]
        if content.isascii():
            values = np.frombuffer(content + bytes(8), np.uint8)
        else:
            values = np.frombuffer(content.decode().encode("utf-32-le") + bytes(8), "<u4")
        keys = sequence_keys(values, self.rep_len)
        counts = np.maximum(lengths - self.rep_len + 1, 0)
        keys = parts_of(keys, np.cumsum(lengths) - lengths, counts)
        return _share_of_most_frequent(find_repeats(keys, counts))


def _share_of_most_frequent(found: Repeats) -> Any:
    row_count = len(found.totals)
    several = np.bincount(found.rows, minlength=row_count)
    counted = np.minimum(np.sqrt(found.distinct).astype(np.int64), several)
    order = np.lexsort((-found.times, found.rows))
    first = np.cumsum(several) - several
    rank = np.arange(len(order)) - first[found.rows]
    chosen = order[rank < counted[found.rows]]
    sums = np.bincount(found.rows[chosen], weights=found.times[chosen], minlength=row_count)
    return sums / np.maximum(found.totals, 1)
