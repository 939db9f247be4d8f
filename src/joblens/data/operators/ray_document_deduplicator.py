"""The same as document_deduplicator under the name it has for clusters; any executor runs it."""

from typing import Any, Literal

import numpy as np

from joblens.data.operators.document_deduplicator import DocumentDeduplicator
from joblens.data.texts.text_folding import Texts


class RayDocumentDeduplicator(DocumentDeduplicator):
    """Keeps the first of all rows whose texts are the same. Where hashes are kept (`backend`,
    `redis_address`, `dedup_set_num`) is accepted and changes nothing: they are kept in the job's folder."""

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
        """A row without any text is another thing than one with nothing but white space in it."""
        hashes = super()._hashes(texts)
        empty = np.diff(texts.offsets) == 0
        if not empty.any():
            return hashes
        hashes = hashes.copy()
        hashes[empty] = 0
        return hashes
