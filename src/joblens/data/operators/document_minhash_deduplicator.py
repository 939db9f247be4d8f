"""Of rows with similar texts the first stays, by MinHash and locality-sensitive hashing."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from msgspec import Meta

from joblens.data.base.operator import Signatures
from joblens.data.texts.clusters import alone, join, row_type
from joblens.data.texts.digests import padded, sha1_32
from joblens.data.texts.duplicates import count_rows, later_equals, numbers
from joblens.data.texts.minhash import bands, best_bands, least_values, permutations
from joblens.data.texts.similar_texts import SimilarTexts, Tokenization, distinct_texts, in_slices
from joblens.data.texts.text_folding import Texts
from joblens.model.errors import RecipeError

Count = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0, le=1)]


class DocumentMinhashDeduplicator(SimilarTexts):
    """Keeps the first of all rows whose texts share about `jaccard_threshold` of their shingles
    (`window_size` neighbouring tokens), directly or through others. Texts too short for a shingle count as
    the same."""

    name = "document_minhash_deduplicator"

    def __init__(  # noqa: PLR0913 - what recipes may say
        self,
        *,
        tokenization: Tokenization = "space",
        window_size: Count = 5,
        lowercase: bool = True,
        ignore_pattern: str | None = None,
        num_permutations: Count = 256,
        jaccard_threshold: Share = 0.7,
        num_bands: Count | None = None,
        num_rows_per_band: Count | None = None,
        tokenizer_model: str | None = None,
    ) -> None:
        self.tokenization = tokenization
        self.window_size = window_size
        self.lowercase = lowercase
        self.ignore_pattern = ignore_pattern
        self.tokenizer_model = tokenizer_model
        self.num_permutations = num_permutations
        if num_bands is None or num_rows_per_band is None:
            num_bands, num_rows_per_band = best_bands(jaccard_threshold, num_permutations)
        self.num_bands, self.num_rows_per_band = num_bands, num_rows_per_band
        factors, summands = permutations(num_permutations)
        used = num_bands * num_rows_per_band  # the others would be computed for nothing
        self._factors, self._summands = factors[:used], summands[:used]

    def check(self) -> None:
        super().check()
        if self.num_bands * self.num_rows_per_band > self.num_permutations:
            raise RecipeError(
                f"{self.name}: {self.num_bands} bands of {self.num_rows_per_band} rows need "
                f"{self.num_bands * self.num_rows_per_band} permutations; there are {self.num_permutations}"
            )

    def signatures(self, batch: Any) -> Any:
        texts, which = distinct_texts(batch.column(self.text_key))
        found = np.empty((self.num_bands, len(texts)), np.uint64)
        for start, some in in_slices(texts):
            found[:, start : start + some.count] = self._bands(some)
        return pa.RecordBatch.from_arrays([pa.array(band[which]) for band in found], names=self._columns())

    def decide(self, parts: Sequence[Signatures], *, budget_bytes: int, scratch: str) -> Iterable[Any]:
        count = count_rows(parts)
        parents = numbers(count, row_type(count), budget_bytes=budget_bytes, scratch=scratch, name="parents")
        alone(parents)
        for column in self._columns():
            for later, first in later_equals(parts, (column,), budget_bytes=budget_bytes // 2):
                join(parents, later, first)
        return _firsts(parts, parents)

    def _columns(self) -> list[str]:
        return [f"band_{i}" for i in range(self.num_bands)]

    def _bands(self, texts: Texts) -> list[Any]:
        shingles = self.shingles_of(texts)
        hashes = sha1_32(padded(shingles.data), shingles.starts, shingles.lengths)
        values = least_values(hashes, shingles.counts, self._factors, self._summands)
        return bands(values, self.num_bands, self.num_rows_per_band)


def _firsts(parts: Sequence[Signatures], parents: Any) -> Iterable[Any]:
    """Only the first row of a cluster points to itself."""
    first = 0
    for part in parts:
        some = parents[first : first + part.rows]
        yield pa.array(some == np.arange(first, first + part.rows, dtype=parents.dtype))
        first += part.rows
