"""Of rows with similar texts the first stays, by SimHash."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
from msgspec import Meta

from joblens.data.base.operator import Signatures
from joblens.data.texts.clusters import alone, join, row_type
from joblens.data.texts.digests import md5_64, padded
from joblens.data.texts.duplicates import count_rows, later_equals, numbers
from joblens.data.texts.minhash import mixed
from joblens.data.texts.simhash import BITS, neighbours, simhashes
from joblens.data.texts.similar_texts import SimilarTexts, distinct_texts, in_slices
from joblens.model.errors import RecipeError

Count = Annotated[int, Meta(ge=1)]
_BYTES_A_HASH = 96  # while neighbours are looked for


class DocumentSimhashDeduplicator(SimilarTexts):
    """Keeps the first of all rows whose hashes of 64 bits differ in at most `hamming_distance`, directly or
    through others. Texts too short for a shingle (`window_size` neighbouring tokens) count as the same."""

    name = "document_simhash_deduplicator"

    def __init__(
        self,
        *,
        tokenization: Literal["space", "punctuation", "character"] = "space",
        window_size: Count = 6,
        lowercase: bool = True,
        ignore_pattern: str | None = None,
        num_blocks: Count = 6,
        hamming_distance: Count = 4,
    ) -> None:
        self.tokenization = tokenization
        self.window_size = window_size
        self.lowercase = lowercase
        self.ignore_pattern = ignore_pattern
        self.num_blocks = num_blocks
        self.hamming_distance = hamming_distance

    def check(self) -> None:
        super().check()
        if not self.hamming_distance < self.num_blocks <= BITS:
            raise RecipeError(
                f"{self.name}: 'num_blocks' ({self.num_blocks}) must be more than 'hamming_distance' "
                f"({self.hamming_distance}) and at most {BITS}"
            )

    def signatures(self, batch: Any) -> Any:
        texts, which = distinct_texts(batch.column(self.text_key))
        found = np.empty(len(texts), np.uint64)
        for start, some in in_slices(texts):
            shingles = self.shingles_of(some)
            hashes = md5_64(padded(shingles.data), shingles.starts, shingles.lengths)
            found[start : start + some.count] = simhashes(hashes, shingles.counts)
        rows = found[which]
        return pa.RecordBatch.from_arrays([pa.array(rows), pa.array(mixed(rows))], names=["hash", "key"])

    def decide(self, parts: Sequence[Signatures], *, budget_bytes: int, scratch: str) -> Iterable[Any]:
        def room(count: int, kind: Any, name: str) -> Any:
            return numbers(count, kind, budget_bytes=budget_bytes // 4, scratch=scratch, name=name)

        count = count_rows(parts)
        keep = room(count, np.bool_, "keep")
        keep[:] = True
        for later, _ in later_equals(parts, ("key",), budget_bytes=budget_bytes // 2):
            keep[later] = False
        hashes = room(int(np.count_nonzero(keep)), np.uint64, "hashes")
        _fill(hashes, parts, keep)
        parents = room(len(hashes), row_type(len(hashes)), "parents")
        alone(parents)
        at_once = max(1, budget_bytes // 2 // _BYTES_A_HASH)
        for left, right in neighbours(hashes, self.num_blocks, self.hamming_distance, at_once=at_once):
            join(parents, left, right)
        return _firsts(parts, keep, parents)


def _fill(hashes: Any, parts: Sequence[Signatures], keep: Any) -> None:
    row = done = 0
    for part in parts:
        some = part.batch.column("hash").to_numpy()[keep[row : row + part.rows]]
        hashes[done : done + len(some)] = some
        row, done = row + part.rows, done + len(some)


def _firsts(parts: Sequence[Signatures], keep: Any, parents: Any) -> Iterable[Any]:
    """Of the rows with a hash of their own, which `parents` is about, those that point to themselves."""
    row = done = 0
    for part in parts:
        mask = np.array(keep[row : row + part.rows], np.bool_)
        own = np.arange(done, done + np.count_nonzero(mask), dtype=parents.dtype)
        mask[mask] = parents[done : done + len(own)] == own
        yield pa.array(mask)
        row, done = row + part.rows, done + len(own)
