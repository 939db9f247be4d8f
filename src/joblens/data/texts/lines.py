"""Lines of a text column, as Python's `splitlines` finds them, in all rows at once."""

from typing import Any

import numpy as np

from joblens.data.texts.bits import Bits, count_before
from joblens.data.texts.text_view import CharacterClasses, Text, character_sizes

_BREAKS = "\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029"
_classes = CharacterClasses(lambda character: int(character in _BREAKS))


def count_lines(text: Text) -> Any:
    return np.diff(np.searchsorted(_lines(text)[0], text.offsets))


def longest_lines(text: Text) -> Any:
    """In characters, without what ends the line; 0 for a row without lines."""
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
    """Where each line begins, and where the break or the row end is that ends it."""
    breaks = np.concatenate(
        [np.zeros(0, np.int64), *(np.flatnonzero(found) + start for start, found in _classes.blocks(text))]
    )
    row_ends = text.offsets[text.rows_of(breaks) + 1]
    behind = breaks + character_sizes(text.data[breaks])
    # A carriage return and the new line that follows it in the same row are one break.
    is_return = (text.data[breaks] == 0x0D) & (behind < row_ends)
    is_return[is_return] = text.data[behind[is_return]] == 0x0A
    starts = np.sort(np.concatenate((text.first_bytes(), behind[~is_return & (behind < row_ends)])))
    is_second = np.concatenate((np.zeros(1, bool), is_return))[:-1]
    first_breaks = np.append(breaks[~is_second], text.size)
    ends = first_breaks[np.searchsorted(first_breaks, starts)]
    return starts, np.minimum(ends, text.offsets[text.rows_of(starts) + 1])
