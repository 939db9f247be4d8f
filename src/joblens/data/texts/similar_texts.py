"""What the two deduplicators of similar texts have in common: how texts become shingles."""

import itertools
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import pyarrow.compute as pc
import xxhash

from joblens.data.base.operator import GlobalOperator
from joblens.data.texts.pattern_replacement import LONGEST_MATCH_S, regex_package
from joblens.data.texts.shingles import (
    Shingles,
    Tokens,
    shingled,
    split_at_characters,
    split_at_punctuation,
    split_at_spaces,
    split_by,
)
from joblens.data.texts.text_folding import Texts, lowered, texts_of, without_pattern
from joblens.model.errors import JobCannotGoOn, MissingExtra, RecipeError

Tokenization = Literal["space", "punctuation", "character", "sentencepiece"]
_BYTES_AT_ONCE = 4 << 20  # of text: what is made of it takes some twenty times as much


class SimilarTexts(GlobalOperator):
    tokenization: str
    window_size: int
    lowercase: bool
    ignore_pattern: str | None
    tokenizer_model: str | None = None
    _pattern: Any = None
    _pieces_of: Any = None

    def check(self) -> None:
        if self.ignore_pattern:
            self._pattern = _compiled(self.name, self.ignore_pattern)
        if self.tokenization == "sentencepiece":
            self._pieces_of = _sentencepiece(self.name, self.tokenizer_model)

    def shingles_of(self, texts: Texts) -> Shingles:
        if (self.ignore_pattern and self._pattern is None) or (
            self.tokenization == "sentencepiece" and self._pieces_of is None
        ):
            self.check()
        if self.lowercase:
            texts = lowered(texts)
        if self._pattern is not None:
            texts = without_pattern(texts, self._pattern)
        return shingled(self._tokens(texts), self.window_size)

    def _tokens(self, texts: Texts) -> Tokens:
        if self.tokenization == "space":
            return split_at_spaces(texts)
        if self.tokenization == "character":
            return split_at_characters(texts)
        if self.tokenization == "punctuation":
            return split_at_punctuation(texts)
        return split_by(texts, self._pieces_of)


def distinct_texts(column: Any) -> tuple[Any, Any]:
    """The texts that differ, as a column, and for each row which of them it has: work is done once for what
    was copied as a whole."""
    if column.null_count:
        column = pc.fill_null(column, "")
    texts = texts_of(column)
    view, offsets = memoryview(texts.data), texts.offsets.tolist()
    digest = xxhash.xxh3_128_digest
    numbers: dict[bytes, int] = {}
    which = [
        numbers.setdefault(digest(view[start:end]), len(numbers))
        for start, end in itertools.pairwise(offsets)
    ]
    places = np.array(which, np.int64)
    firsts = np.zeros(len(numbers), np.int64)
    firsts[places[::-1]] = np.arange(len(places))[::-1]
    return column.take(firsts) if len(numbers) < len(column) else column, places


def in_slices(column: Any) -> Iterator[tuple[int, Texts]]:
    """The texts some at a time, each time with the number of the first."""
    texts = texts_of(column)
    start = 0
    while start < texts.count:
        limit = texts.offsets[start] + _BYTES_AT_ONCE
        end = max(start + 1, int(np.searchsorted(texts.offsets, limit, side="right")) - 1)
        yield start, texts.slice(start, end)
        start = end


class _Bounded:
    """A pattern that gives up on a text it takes too long with."""

    def __init__(self, pattern: Any) -> None:
        self._pattern = pattern

    def sub(self, replacement: str, text: str) -> str:
        try:
            return str(self._pattern.sub(replacement, text, timeout=LONGEST_MATCH_S))
        except TimeoutError:
            raise JobCannotGoOn(
                f"'ignore_pattern' takes longer than {LONGEST_MATCH_S:g} s on a text",
                hint="repeats inside repeats, such as (a+)+, may never end",
            ) from None


def _compiled(name: str, pattern: str) -> Any:
    """Raises RecipeError, and MissingExtra where the package regex is not installed."""
    regex = regex_package()
    try:
        return _Bounded(regex.compile(pattern))
    except regex.error as error:
        raise RecipeError(f"{name}: 'ignore_pattern' is no regular expression: {error}") from error


def _sentencepiece(name: str, model: str | None) -> Any:
    if not model:
        raise RecipeError(
            f"{name}: tokenization 'sentencepiece' needs 'tokenizer_model', the path of a model"
        )
    try:
        import sentencepiece  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError as error:
        raise MissingExtra(
            f"{name}: tokenization 'sentencepiece' needs a package that is not installed",
            hint="pip install sentencepiece",
        ) from error
    try:
        processor = sentencepiece.SentencePieceProcessor(model_file=model)
    except (OSError, RuntimeError) as error:
        raise RecipeError(f"{name}: the model {model} cannot be read: {error}") from error
    return lambda text: processor.encode(text, out_type=str)
