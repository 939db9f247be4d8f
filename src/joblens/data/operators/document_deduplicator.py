"""Rows with the same text as an earlier one leave."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from joblens.data.base.operator import GlobalOperator, Signatures
from joblens.data.texts.duplicates import count_rows, later_equals, masks, numbers
from joblens.data.texts.text_folding import Texts, lowered, only_characters, stripped_bytes, texts_of


class DocumentDeduplicator(GlobalOperator):
    """Keeps the first of all rows whose texts are the same. White space around a text does not count."""

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
        """128 bits a text, as two columns."""
        if self.lowercase:
            texts = lowered(texts)
        if self.ignore_non_character:
            texts = only_characters(texts)
        digest = xxhash.xxh3_128_digest
        digests = b"".join([digest(text) for text in stripped_bytes(texts)])
        return np.frombuffer(digests, np.uint64).reshape(-1, 2)
