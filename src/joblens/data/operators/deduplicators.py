"""Deduplicators: equal documents, and similar ones by MinHash or SimHash."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
import xxhash
from msgspec import Meta

from joblens.data.base.operator import GlobalOperator, Signatures
from joblens.data.texts.digests import md5_64, padded, sha1_32
from joblens.data.texts.duplicates import alone, count_rows, join, later_equals, masks, numbers, row_type
from joblens.data.texts.shingles import (
    SimilarTexts,
    Texts,
    Tokenization,
    distinct_texts,
    in_slices,
    lowered,
    only_characters,
    stripped_bytes,
    texts_of,
)
from joblens.data.texts.signatures import (
    BITS,
    bands,
    best_bands,
    least_values,
    mixed,
    neighbours,
    permutations,
    simhashes,
)
from joblens.model.errors import RecipeError


class DocumentDeduplicator(GlobalOperator):
    """Keeps the first of all rows with equal texts. Ignores white space around a text."""

    name = "document_deduplicator"

    def __init__(self, *, lowercase: bool = False, ignore_non_character: bool = False) -> None:
        self.lowercase = lowercase
        self.ignore_non_character = ignore_non_character

    def signatures(self, batch: Any) -> Any:
        hashes = self._hashes(texts_of(batch.column(self.text_key)))
        return pa.RecordBatch.from_arrays(
            [pa.array(hashes[:, 0]), pa.array(hashes[:, 1])], names=["high", "low"]
        )

    def decide(self, parts: Sequence[Signatures], *, budget_bytes: int, scratch: str) -> Iterable[Any]:
        is_later = numbers(
            count_rows(parts), np.bool_, budget_bytes=budget_bytes, scratch=scratch, name="later"
        )
        for later, _ in later_equals(parts, ("high", "low"), budget_bytes=budget_bytes):
            is_later[later] = True
        return masks(parts, np.logical_not(is_later, out=is_later))

    def _hashes(self, texts: Texts) -> Any:
        """Returns 128 bits per text, as two columns."""
        if self.lowercase:
            texts = lowered(texts)
        if self.ignore_non_character:
            texts = only_characters(texts)
        digest = xxhash.xxh3_128_digest
        digests = b"".join([digest(text) for text in stripped_bytes(texts)])
        return np.frombuffer(digests, np.uint64).reshape(-1, 2)


class RayDocumentDeduplicator(DocumentDeduplicator):
    """Keeps the first of all rows with equal texts. `backend`, `redis_address` and `dedup_set_num` are
    accepted and ignored: hashes are kept in the job's folder."""

    name = "ray_document_deduplicator"

    def __init__(
        self,
        *,
        backend: Literal["ray_actor", "redis"] = "ray_actor",
        redis_address: str = "",
        dedup_set_num: int | str = "auto",
        lowercase: bool = False,
        ignore_non_character: bool = False,
    ) -> None:
        super().__init__(lowercase=lowercase, ignore_non_character=ignore_non_character)

    def _hashes(self, texts: Texts) -> Any:
        """Hashes texts, so that an empty text differs from one of only white space."""
        hashes = super()._hashes(texts)
        empty = np.diff(texts.offsets) == 0
        if not empty.any():
            return hashes
        hashes = hashes.copy()
        hashes[empty] = 0
        return hashes


Count = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0, le=1)]


class DocumentMinhashDeduplicator(SimilarTexts):
    """Keeps the first of all rows whose texts share about `jaccard_threshold` of their shingles
    (`window_size` neighbouring tokens), directly or through others. Texts too short for a shingle count as
    the same."""

    name = "document_minhash_deduplicator"

    def __init__(  # noqa: PLR0913 - the parameters of recipes
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
        used = num_bands * num_rows_per_band  # the others are not needed
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
        return _first_rows(parts, parents)

    def _columns(self) -> list[str]:
        return [f"band_{i}" for i in range(self.num_bands)]

    def _bands(self, texts: Texts) -> list[Any]:
        shingles = self.shingles_of(texts)
        hashes = sha1_32(padded(shingles.data), shingles.starts, shingles.lengths)
        values = least_values(hashes, shingles.counts, self._factors, self._summands)
        return bands(values, self.num_bands, self.num_rows_per_band)


def _first_rows(parts: Sequence[Signatures], parents: Any, keep: Any = None) -> Iterable[Any]:
    """Yields a mask per part: the rows that point to themselves, the first ones of their clusters. With
    `keep`, `parents` has an entry only for the rows that are true there; the others are dropped."""
    row = done = 0
    for part in parts:
        mask = np.ones(part.rows, np.bool_) if keep is None else np.array(keep[row : row + part.rows])
        own = np.arange(done, done + np.count_nonzero(mask), dtype=parents.dtype)
        mask[mask] = parents[done : done + len(own)] == own
        yield pa.array(mask)
        row, done = row + part.rows, done + len(own)


_BYTES_PER_HASH = 96  # of the search for neighbours


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
        def allocate(count: int, kind: Any, name: str) -> Any:
            return numbers(count, kind, budget_bytes=budget_bytes // 4, scratch=scratch, name=name)

        count = count_rows(parts)
        keep = allocate(count, np.bool_, "keep")
        keep[:] = True
        for later, _ in later_equals(parts, ("key",), budget_bytes=budget_bytes // 2):
            keep[later] = False
        hashes = allocate(int(np.count_nonzero(keep)), np.uint64, "hashes")
        _fill(hashes, parts, keep)
        parents = allocate(len(hashes), row_type(len(hashes)), "parents")
        alone(parents)
        at_once = max(1, budget_bytes // 2 // _BYTES_PER_HASH)
        for left, right in neighbours(hashes, self.num_blocks, self.hamming_distance, at_once=at_once):
            join(parents, left, right)
        return _first_rows(parts, parents, keep)


def _fill(hashes: Any, parts: Sequence[Signatures], keep: Any) -> None:
    row = done = 0
    for part in parts:
        some = part.batch.column("hash").to_numpy()[keep[row : row + part.rows]]
        hashes[done : done + len(some)] = some
        row, done = row + part.rows, done + len(some)
