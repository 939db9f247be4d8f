import sys
from typing import Any

import numpy as np

from joblens.data.base.operator import Mapper
from joblens.data.texts.bits import Bits, count_rows, of_words, positions, shifted
from joblens.data.texts.pattern_replacement import with_rows
from joblens.data.texts.special_characters import bare_word
from joblens.data.texts.text_view import CharacterClasses, Text, text_of, with_text

_SEPARATOR = 1
_classes = CharacterClasses(lambda character: _SEPARATOR if character in " \t\n" else 0)


class RemoveLongWordsMapper(Mapper):
    """Removes words with fewer or more characters than allowed; a long one stays when it is short enough
    without special characters at its ends. Several spaces, tabs or new lines in a row become one."""

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
        """Rows with an empty word, which is what lies between neighbouring separators and outside those at
        the ends, or with one of a length in bytes that its length in characters may be too small or great."""
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
    """Where words begin, and how many bytes they have."""
    starts = of_words((shifted(separators.words) | _bits_at(text.first_bytes(), text)) & ~separators.words)
    begins = positions(starts, text.size)
    ends = np.sort(np.concatenate((positions(separators, text.size), text.offsets[1:])))
    return begins, ends[np.searchsorted(ends, begins, side="right")] - begins


def _bits_at(places: Any, text: Text) -> Any:
    bits = Bits(text.size)
    bits.set(places)
    return bits.words
