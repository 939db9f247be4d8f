"""Texts as runs of neighbouring tokens. A run is a stretch of one block of bytes, so that none is ever made
into a string of its own."""

import unicodedata
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from msgspec import Struct

from joblens.data.texts.text_folding import Texts, every_string, mapped_wide, replaced_bytes

_SPACE = 0x20
_MARK = 0xFF  # a byte that UTF-8 never has


class Tokens(Struct, frozen=True, eq=False):
    """Of all texts behind one another. Neighbours of one text are joined as they stand in `data`."""

    data: Any  # uint8
    starts: Any  # int64
    ends: Any
    counts: Any  # tokens a text


class Shingles(Struct, frozen=True, eq=False):
    data: Any
    starts: Any
    lengths: Any
    counts: Any  # shingles a text; 0 where it has fewer tokens than a shingle


def shingled(tokens: Tokens, window: int) -> Shingles:
    counts = np.maximum(tokens.counts - (window - 1), 0)
    of_text = np.repeat(np.arange(len(tokens.counts)), tokens.counts)
    last = len(of_text) - (window - 1)
    if last <= 0:
        return Shingles(tokens.data, np.zeros(0, np.int64), np.zeros(0, np.int64), counts)
    is_whole = of_text[:last] == of_text[window - 1 :]
    starts = tokens.starts[:last][is_whole]
    return Shingles(tokens.data, starts, tokens.ends[window - 1 :][is_whole] - starts, counts)


def split_at_spaces(texts: Texts) -> Tokens:
    """Between blanks (no other white space); as many blanks as there are become one."""
    is_space = texts.data == _SPACE
    filled = np.flatnonzero(np.diff(texts.offsets))
    is_start = np.ones(len(is_space), np.bool_)
    is_start[1:] = is_space[:-1]
    is_start[texts.offsets[filled]] = True
    is_start &= ~is_space
    is_end = np.ones(len(is_space), np.bool_)
    is_end[:-1] = is_space[1:]
    is_end[texts.offsets[filled + 1] - 1] = True
    is_end &= ~is_space
    starts, ends = np.flatnonzero(is_start), np.flatnonzero(is_end) + 1
    bounds = np.searchsorted(starts, texts.offsets)
    is_joined = np.ones(len(starts), np.bool_)  # with the token behind it
    is_joined[bounds[1:][bounds[1:] > 0] - 1] = False
    if np.any((starts[1:] - ends[:-1] != 1) & is_joined[:-1]):
        keep = ~is_space
        keep[ends[is_joined]] = True
        lengths = ends - starts
        ends = np.cumsum(lengths + is_joined) - is_joined
        return Tokens(texts.data[keep], ends - lengths, ends, np.diff(bounds))
    return Tokens(texts.data, starts, ends, np.diff(bounds))


def split_at_characters(texts: Texts) -> Tokens:
    starts = np.flatnonzero((texts.data & 0xC0) != 0x80)
    ends = np.append(starts[1:], len(texts.data))[: len(starts)]
    return Tokens(texts.data, starts, ends, np.diff(np.searchsorted(starts, texts.offsets)))


def split_at_punctuation(texts: Texts) -> Tokens:
    """Every mark of punctuation ends a token, which may be empty; tokens are joined by a blank."""
    table = np.arange(256, dtype=np.uint8)
    table[[code for code in range(128) if unicodedata.category(chr(code))[0] == "P"]] = _MARK
    wide, changed = mapped_wide(texts, _marked)
    texts = replaced_bytes(Texts(table[texts.data], texts.offsets), wide, changed)
    marks = np.flatnonzero(texts.data == _MARK)
    data = texts.data.copy()
    data[marks] = _SPACE
    starts = np.sort(np.concatenate((texts.offsets[:-1], marks + 1)))
    ends = np.sort(np.concatenate((texts.offsets[1:], marks)))
    return Tokens(data, starts, ends, np.diff(np.searchsorted(marks, texts.offsets)) + 1)


def split_by(texts: Texts, pieces_of: Callable[[str], Sequence[str]]) -> Tokens:
    """By somebody else's tokenizer; tokens are joined without anything between them."""
    pieces = [[piece.encode() for piece in pieces_of(text)] for text in every_string(texts)]
    flat = [piece for of_text in pieces for piece in of_text]
    ends = np.cumsum([len(piece) for piece in flat], dtype=np.int64)
    starts = np.concatenate((np.zeros(min(1, len(ends)), np.int64), ends[:-1]))
    counts = np.array([len(of_text) for of_text in pieces], np.int64)
    return Tokens(np.frombuffer(b"".join(flat), np.uint8), starts, ends, counts)


def _marked(text: str) -> bytes:
    return text.translate(_marks()).encode("utf-8", "surrogateescape")


@cache
def _marks() -> dict[int, str]:
    every = (code for code in range(0x110000) if unicodedata.category(chr(code))[0] == "P")
    return dict.fromkeys(every, "\udcff")  # encoded as the one byte
