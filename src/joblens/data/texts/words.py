"""Words, lines and special characters of a text column, for all rows at once."""

from functools import cache
from typing import Any

import numpy as np

from joblens.data.texts.text_view import (
    Bits,
    CharacterClasses,
    Text,
    character_sizes,
    count_before,
    of_words,
    positions,
    reversed_bits,
    runs_end,
    shifted,
)

_BREAKS = "\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029"
_classes = CharacterClasses(lambda character: int(character in _BREAKS))


def count_lines(text: Text) -> Any:
    return np.diff(np.searchsorted(_lines(text)[0], text.offsets))


def longest_lines(text: Text) -> Any:
    """Returns the length in characters of each row's longest line, without its end;

    0 for a row without lines.
    """
    starts, ends = _lines(text)
    if text.is_ascii:
        lengths = ends - starts
    else:
        characters = Bits(text.size)
        characters.fill(0, (text.data & 0xC0) != 0x80)
        lengths = count_before(characters, ends) - count_before(characters, starts)
    found = np.zeros(text.rows, np.int64)
    np.maximum.at(found, text.rows_of(starts), lengths)
    return found


def _lines(text: Text) -> tuple[Any, Any]:
    """Returns the start of each line, and the position of its line break or row end."""
    breaks = np.concatenate(
        [np.zeros(0, np.int64), *(np.flatnonzero(found) + start for start, found in _classes.blocks(text))]
    )
    row_ends = text.offsets[text.rows_of(breaks) + 1]
    behind = breaks + character_sizes(text.data[breaks])
    # A carriage return followed by a new line in the same row is one break.
    is_return = (text.data[breaks] == 0x0D) & (behind < row_ends)
    is_return[is_return] = text.data[behind[is_return]] == 0x0A
    starts = np.sort(np.concatenate((text.first_bytes(), behind[~is_return & (behind < row_ends)])))
    is_second = np.concatenate((np.zeros(1, bool), is_return))[:-1]
    first_breaks = np.append(breaks[~is_second], text.size)
    ends = first_breaks[np.searchsorted(first_breaks, starts)]
    return starts, np.minimum(ends, text.offsets[text.rows_of(starts) + 1])


# Code points in hexadecimal, ranges with both ends.
_RANGES = """
9-d 20-40 5b-60 7b-7e 81-85 91-93 95-99 9c-9d a1-ab ad-b4 b7-bf d7 f7-f8 131 26a 2ba-2bc 2c8 2cc 2d0 2d8
2da 2dc 3c0 413 60c 647 66a 66c 6e9 93e 940 947 94d 97d 9be e51 2002-2003 2005 2008-200b 2010-2011
2013-2016 2018-201a 201c-2020 2022 2024 2026 202f-2030 2032-2033 2039-203a 203c 203f 2043-2044 2049 20a8
20aa 20ac 2103 2122 2139 2190-2199 21a9-21aa 21d3 2206 2208 2212 221a 221e-221f 223c 2248 2256 2264-2265
2295 22c5 231a-231b 2328 23cf 23e9-23f3 23f8-23fa 24c2 2550 25a0 25aa-25ac 25b2 25b4 25b6-25b7 25ba-25bc
25c0 25c6 25cf 25e6 25fb-25fe 2600-2606 260e 2611 2614-2615 2618 261b 261d 2620 2622-2623 2626 262a
262e-262f 2638-263b 2640 2642 2648-2653 265f-2661 2663 2665-2666 2668 266b 267b 267e-267f 2692-2697 2699
269b-269c 26a0-26a1 26a7 26aa-26ab 26b0-26b1 26bd-26be 26c4-26c5 26c8 26ce-26cf 26d1 26d3-26d4 26e9-26ea
26f0-26f5 26f7-26fa 26fd 2702 2705 2708-270d 270f 2712-2714 2716 271d 2721 2726 2728 2731 2733-2734 2744
2747 274c 274e 2753-2757 2763-2764 2795-2797 27a1 27a4 27a9 27b0 27bf 2800 2934-2935 2b05-2b07 2b1b-2b1c
2b50 2b55 3000-3002 300a-300d 3010-3011 3030 303d 309c 30b7 30c3-30c4 30f3 30fb-30fc 3297 3299 4e00 4e0a
58eb fd3e-fd3f feff ff01 ff08-ff09 ff0c ff0e ff11 ff1a-ff1b ff1f ff3e ff5e fffc-fffd 1f004 1f0cf
1f170-1f171 1f17e-1f17f 1f18e 1f191-1f19a 1f201-1f202 1f21a 1f22f 1f232-1f23a 1f250-1f251 1f300-1f321
1f324-1f393 1f396-1f397 1f399-1f39b 1f39e-1f3f0 1f3f3-1f3f5 1f3f7-1f4fd 1f4ff-1f53d 1f549-1f54e
1f550-1f567 1f56f-1f570 1f573-1f57a 1f587 1f58a-1f58d 1f590 1f595-1f596 1f5a4-1f5a5 1f5a8 1f5b1-1f5b2
1f5bc 1f5c2-1f5c4 1f5d1-1f5d3 1f5dc-1f5de 1f5e1 1f5e3 1f5e8 1f5ef 1f5f3 1f5fa-1f64f 1f680-1f6c5
1f6cb-1f6d2 1f6d5-1f6d7 1f6dc-1f6e5 1f6e9 1f6eb-1f6ec 1f6f0 1f6f3-1f6fc 1f7e0-1f7eb 1f7f0 1f90c-1f93a
1f93c-1f945 1f947-1f9ff 1fa70-1fa7c 1fa80-1fa88 1fa90-1fabd 1fabf-1fac5 1face-1fadb 1fae0-1fae8
1faf0-1faf8
"""


@cache
def special_characters() -> frozenset[str]:
    found: set[str] = set()
    for part in _RANGES.split():
        first, _, last = part.partition("-")
        found.update(map(chr, range(int(first, 16), int(last or first, 16) + 1)))
    return frozenset(found)


def bare_word(word: str) -> str:
    """Removes special characters at both ends."""
    special = special_characters()
    start, end = 0, len(word)
    while start < end and word[start] in special:
        start += 1
    while end > start and word[end - 1] in special:
        end -= 1
    return word[start:end]


# Classes of `word_classes`. Bytes inside a character count as special: they neither end nor start a word.
SPECIAL, LETTER, SEPARATOR = 0, 1, 2


@cache
def word_classes() -> CharacterClasses:
    """Words end at spaces, tabs and new lines; special characters at their ends do not belong to them."""
    special = special_characters()

    def classify(character: str) -> int:
        if character in " \n\t":
            return SEPARATOR
        return SPECIAL if character in special else LETTER

    return CharacterClasses(classify, inside=SPECIAL)


def word_starts(text: Text) -> Bits:
    """Sets a bit at the first non-special character of each word.

    Words of only special characters are not words: stripping leaves nothing.
    """
    letters, separators = _letters_and_separators(text)
    return of_words(_first_letters(letters, separators, _bits_at(text.first_bytes(), text.size)))


def word_spans(text: Text) -> tuple[Any, Any]:
    """Returns the start and end of each word, without special characters at its ends."""
    letters, separators = _letters_and_separators(text)
    first = _first_letters(letters, separators, _bits_at(text.first_bytes(), text.size))
    # The last letter of a word is its first letter, read backwards.
    row_ends = reversed_bits(_bits_at(text.last_bytes(), text.size))
    last = reversed_bits(_first_letters(reversed_bits(letters), reversed_bits(separators), row_ends))
    starts = positions(of_words(first), text.size)
    lasts = positions(of_words(last), text.size)
    return starts, lasts + (1 if text.is_ascii else character_sizes(text.data[lasts]))


def _letters_and_separators(text: Text) -> tuple[Any, Any]:
    letters, separators = Bits(text.size), Bits(text.size)
    for start, classes in word_classes().blocks(text):
        letters.fill(start, classes == LETTER)
        separators.fill(start, classes == SEPARATOR)
    return letters.words, separators.words


def _bits_at(at: Any, size: int) -> Any:
    bits = Bits(size)
    bits.set(at)
    return bits.words


def _first_letters(letters: Any, separators: Any, row_starts: Any) -> Any:
    """Finds the first letter of each token, which starts behind a separator or at a row start.

    Leading special characters are skipped by an addition: a run of ones, plus one at its start, carries to
    the bit behind it. A run that continues into the next row cannot carry over wrongly, because that row's
    own token starts there too.
    """
    special = ~(letters | separators)
    begins = (shifted(separators) | row_starts) & ~separators
    return letters & (begins | runs_end(begins & special, special))
