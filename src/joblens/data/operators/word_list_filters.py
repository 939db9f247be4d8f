"""Word list filters: share of flagged words or stop words."""

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from joblens.data.base.operator import Filter
from joblens.data.rows.ranges import refuse_tokenization, within
from joblens.data.texts.text_view import Text, text_array, text_of
from joblens.data.texts.word_lists import words_of
from joblens.data.texts.words import bare_word

_TO_SPACES = bytes.maketrans(b"\n\t", b"  ")


class ListedWordsFilter(Filter):
    """Base of filters by word lists; `list_name` is the list, `stat` the name of the share."""

    list_name: str
    stat: str

    def __init__(
        self,
        lang: str,
        *,
        tokenization: bool,
        least: float,
        most: float,
        folder: str | None,
        grouping: "WordGroups | None",
    ) -> None:
        self.lang = lang
        self.tokenization = tokenization
        self.least = least
        self.most = most
        self.folder = folder
        self.grouping = grouping
        self._words: frozenset[str] | None = None

    def check(self) -> None:
        refuse_tokenization(self.name, is_wanted=self.tokenization)
        self._listed()

    def stats(self, batch: Any) -> dict[str, Any]:
        text = text_of(batch, self.text_key)
        if self.grouping is None:
            listed, words = count_listed(text, self._listed())
        else:
            listed, words = self.grouping.count_listed(text, self._listed())
        return {self.stat: pa.array(listed / np.maximum(words, 1), pa.float64())}

    def keep(self, stats: dict[str, Any]) -> Any:
        return within(self, stats[self.stat], self.least, self.most)

    def _listed(self) -> frozenset[str]:
        if self._words is None:
            self._words = words_of(self.name, self.list_name, self.lang, self.folder)
        return self._words


def count_listed(text: Text, listed: frozenset[str]) -> tuple[Any, Any]:
    """Returns listed words and all words per row. Looks up each distinct word once."""
    pieces = pc.split_pattern(_with_spaces(text), " ")
    coded = pieces.values.dictionary_encode()
    kinds = np.array([_kind(word, listed) for word in coded.dictionary.to_pylist()], np.uint8)
    if not len(kinds):
        return np.zeros(text.rows, np.int64), np.zeros(text.rows, np.int64)
    found = kinds[coded.indices.to_numpy()]
    offsets = pieces.offsets.to_numpy()
    return _row_sums(found == _LISTED, offsets), _row_sums(found != _NO_WORD, offsets)


_NO_WORD, _WORD, _LISTED = 0, 1, 2


def _kind(word: str, listed: frozenset[str]) -> int:
    bare = bare_word(word.lower())
    if not bare:
        return _NO_WORD
    return _LISTED if bare in listed else _WORD


def _with_spaces(text: Text) -> Any:
    return text_array(text.data.tobytes().translate(_TO_SPACES), np.ascontiguousarray(text.offsets))


def _row_sums(flags: Any, offsets: Any) -> Any:
    sums = np.zeros(len(flags) + 1, np.int64)
    np.cumsum(flags, out=sums[1:])
    return sums[offsets[1:]] - sums[offsets[:-1]]


class WordGroups:
    """Counts joined neighbouring words as words too, for scripts without spaces between words."""

    def __init__(self, sizes: Sequence[int], join_char: str) -> None:
        self._sizes = tuple(sizes)
        self._join_char = join_char

    def count_listed(self, text: Text, listed: frozenset[str]) -> tuple[Any, Any]:
        counts = [self._count_row(text.row(row), listed) for row in range(text.rows)]
        both = np.array(counts, np.int64).reshape(text.rows, 2)
        return both[:, 0], both[:, 1]

    def _count_row(self, text: str, listed: frozenset[str]) -> tuple[int, int]:
        pieces = text.replace("\n", " ").replace("\t", " ").split(" ")
        words = [bare for piece in pieces if (bare := bare_word(piece.lower()))]
        joined = [
            self._join_char.join(words[start : start + size])
            for size in self._sizes
            for start in range(len(words) - size + 1)
        ]
        everything = words + joined
        return sum(word in listed for word in everything), len(everything)


class FlaggedWordsFilter(ListedWordsFilter):
    """Keeps texts by the share of flagged words (pornography, abuse) among their words."""

    name = "flagged_words_filter"
    list_name = "flagged_words"
    stat = "flagged_words_ratio"

    def __init__(
        self,
        *,
        lang: str = "en",
        tokenization: bool = False,
        min_ratio: float = 0.0,
        max_ratio: float = 0.045,
        flagged_words_dir: str | None = None,
        use_words_aug: bool = False,
        words_aug_group_sizes: tuple[Annotated[int, Meta(ge=1)], ...] = (2,),
        words_aug_join_char: str = "",
    ) -> None:
        super().__init__(
            lang,
            tokenization=tokenization,
            least=min_ratio,
            most=max_ratio,
            folder=flagged_words_dir,
            grouping=WordGroups(words_aug_group_sizes, words_aug_join_char) if use_words_aug else None,
        )


class StopwordsFilter(ListedWordsFilter):
    """Keeps texts by the share of stop words (the, of, and) among their words.

    Prose is full of them; lists and tables are not.
    """

    name = "stopwords_filter"
    list_name = "stopwords"
    stat = "stopwords_ratio"

    def __init__(
        self,
        *,
        lang: str = "en",
        tokenization: bool = False,
        min_ratio: float = 0.3,
        max_ratio: float = 1.0,
        stopwords_dir: str | None = None,
        use_words_aug: bool = False,
        words_aug_group_sizes: tuple[Annotated[int, Meta(ge=1)], ...] = (2,),
        words_aug_join_char: str = "",
    ) -> None:
        super().__init__(
            lang,
            tokenization=tokenization,
            least=min_ratio,
            most=max_ratio,
            folder=stopwords_dir,
            grouping=WordGroups(words_aug_group_sizes, words_aug_join_char) if use_words_aug else None,
        )
