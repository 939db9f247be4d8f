"""Removal mappers: long words and repeated sentences."""

import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from joblens.data.base.operator import Mapper
from joblens.data.texts.pattern_replacement import with_rows
from joblens.data.texts.text_view import (
    Bits,
    CharacterClasses,
    Text,
    count_rows,
    of_words,
    positions,
    shifted,
    text_of,
    with_text,
)
from joblens.data.texts.words import bare_word

_SEPARATOR = 1
_classes = CharacterClasses(lambda character: _SEPARATOR if character in " \t\n" else 0)


class RemoveLongWordsMapper(Mapper):
    """Removes words with fewer or more characters than allowed.

    A long word stays if it is short enough without special characters at its ends. Several spaces, tabs or
    new lines in a row become one.
    """

    name = "remove_long_words_mapper"

    def __init__(self, min_len: int = 1, max_len: int = sys.maxsize) -> None:
        self.min_len = min_len
        self.max_len = max_len

    def map(self, batch: Any) -> Any:
        text = text_of(batch, self.text_key)
        changed: dict[int, str] = {}
        for row in self._candidates(text).tolist():
            old = text.row(row)
            new = self._cleaned(old)
            if new != old:
                changed[row] = new
        return with_text(batch, self.text_key, text, with_rows(text, changed))

    def _candidates(self, text: Text) -> Any:
        """Returns rows that may change:
        with adjacent separators, or a word whose size in bytes allows a length out of range.
        """
        separators = _classes.bits(text, _SEPARATOR)
        edges = _bits_at(text.first_bytes(), text) | _bits_at(text.last_bytes(), text)
        odd = separators.words & (shifted(separators.words) | edges)
        candidates = count_rows(of_words(odd), text.offsets) > 0
        if self.min_len > 1 or self.max_len < text.size:
            starts, lengths = _words(text, separators)
            is_odd = (lengths > self.max_len) | (lengths < 4 * self.min_len)
            candidates[text.rows_of(starts[is_odd])] = True
        return np.flatnonzero(candidates)

    def _cleaned(self, text: str) -> str:
        lines = (self._cleaned_line(line) for line in text.split("\n"))
        return "\n".join(line for line in lines if line)

    def _cleaned_line(self, line: str) -> str:
        parts = (" ".join(filter(self._stays, part.split(" "))) for part in line.split("\t"))
        return "\t".join(part for part in parts if part)

    def _stays(self, word: str) -> bool:
        if not word or len(word) < self.min_len:
            return False
        return len(word) <= self.max_len or self.min_len <= len(bare_word(word)) <= self.max_len


def _words(text: Text, separators: Bits) -> tuple[Any, Any]:
    """Returns the start and size in bytes of each word."""
    starts = of_words((shifted(separators.words) | _bits_at(text.first_bytes(), text)) & ~separators.words)
    begins = positions(starts, text.size)
    ends = np.sort(np.concatenate((positions(separators, text.size), text.offsets[1:])))
    return begins, ends[np.searchsorted(ends, begins, side="right")] - begins


def _bits_at(at: Any, text: Text) -> Any:
    bits = Bits(text.size)
    bits.set(at)
    return bits.words


# A sentence ends after its mark, or after a closing quotation mark that follows. The classes are
# DataJuicer's.
_BREAKS = (  # a character that a line must have for the pattern to match, and the pattern
    ("", re.compile("([.。！!？?])([^’”])")),  # noqa: RUF001
    ("......", re.compile(r"(\.{6})([^’”])")),  # noqa: RUF001
    ("……", re.compile("(…{2})([^’”])")),  # noqa: RUF001
    ("", re.compile("([.。!！？?{6}…2][’”])([^’”])")),  # noqa: RUF001
)
_SPECIAL = re.compile("[^a-zA-Z0-9\u4e00-\u9fa5\n\t ]")


class RemoveRepeatSentencesMapper(Mapper):
    """Removes repeated sentences; those shorter than `min_repeat_sentence_length` stay."""

    name = "remove_repeat_sentences_mapper"

    def __init__(
        self,
        *,
        lowercase: bool = False,
        ignore_special_character: bool = True,
        min_repeat_sentence_length: int = 2,
    ) -> None:
        self.lowercase = lowercase
        self.ignore_special_character = ignore_special_character
        self.min_repeat_sentence_length = min_repeat_sentence_length

    def map(self, batch: Any) -> Any:
        text = text_of(batch, self.text_key)
        changed: dict[int, str] = {}
        for row, old in enumerate(text.array.to_pylist()):
            new = self._cleaned(old)
            if new is not None:
                changed[row] = new
        return with_text(batch, self.text_key, text, with_rows(text, changed))

    def _cleaned(self, text: str) -> str | None:
        """Returns None if nothing is repeated."""
        earlier: set[str] = set()
        is_repeated = self._repeated(earlier)
        lines = text.split("\n")
        is_changed = False
        for index, line in enumerate(lines):
            if not line:
                continue
            sentences = _sentences(line)
            remaining = [sentence for sentence in sentences if not is_repeated(sentence)]
            if len(remaining) < len(sentences):
                lines[index] = "".join(remaining)
                is_changed = True
        return "\n".join(lines) if is_changed else None

    def _repeated(self, earlier: set[str]) -> Callable[[str], bool]:
        def is_repeated(sentence: str) -> bool:
            key = sentence.strip()
            if self.lowercase:
                key = key.lower()
            if self.ignore_special_character:
                key = _SPECIAL.sub("", key)
            if len(key) < self.min_repeat_sentence_length:
                return False
            is_known = key in earlier
            earlier.add(key)
            return is_known

        return is_repeated


def _sentences(line: str) -> list[str]:
    for needed, pattern in _BREAKS:
        if needed in line:
            line = pattern.sub(r"\1\n\2", line)
    return line.split("\n")
