"""How often sequences repeat inside each row."""

import itertools
from typing import Any

import numpy as np
from msgspec import Struct

from joblens.data.texts.bits import count_rows
from joblens.data.texts.pattern_replacement import with_rows
from joblens.data.texts.text_view import CharacterClasses, Text
from joblens.data.texts.words import word_spans

# Odd numbers without a pattern: sequences are told apart by sums of products with them, modulo 2^64.
_ODD = 0x9E3779B97F4A7C15
_LONG_WORD = 256  # bytes, from which words are hashed one by one


class Repeats(Struct, frozen=True, eq=False):
    """Of the sequences that occur more than once: the row, and how often. `totals` are all sequences of each
    row, `distinct` those that differ."""

    rows: Any
    times: Any
    totals: Any
    distinct: Any


def find_repeats(keys: Any, counts: Any) -> Repeats:
    """`keys`: the sequences of all rows behind one another, as many of each as `counts` says. They are
    sorted in place: small rows fit the cache, and no key has to spare bits for the row it belongs to."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    ends = offsets.tolist()
    for start, end in itertools.pairwise(ends):
        if end - start > 1:
            keys[start:end].sort()
    is_same = np.zeros(len(keys) + 1, bool)
    if len(keys) > 1:
        is_same[1:-1] = keys[1:] == keys[:-1]
    is_same[offsets] = False  # the first of a row follows nothing
    same = np.flatnonzero(is_same)
    begins = np.flatnonzero(np.diff(same, prepend=-1) != 1)
    times = np.diff(begins, append=len(same)) + 1
    rows = np.searchsorted(offsets, same[begins], side="right") - 1
    more = np.bincount(rows, weights=times - 1, minlength=len(counts)).astype(np.int64)
    return Repeats(rows, times, counts, counts - more)


def parts_of(keys: Any, starts: Any, counts: Any) -> Any:
    """So many keys from each start on, behind one another, without those that reach into the next row."""
    pairs = zip(starts.tolist(), counts.tolist(), strict=True)
    return np.concatenate([keys[:0], *(keys[start : start + count] for start, count in pairs)])


def sequence_keys(values: Any, length: int) -> Any:
    """A number for each `length` neighbours of an array of bytes or of uint32, which must be padded with 8
    bytes: equal for equal ones, and different for others but for a chance of about 2^-64."""
    width = values.itemsize
    size = length * width
    count = len(values) - length + 1 - 8 // width
    if count <= 0:
        return np.zeros(0, np.uint64)
    if size <= 8:
        mask = np.uint64(2 ** (8 * size) - 1)
        return _eight_bytes(values, 0, count) & mask
    keys = np.zeros(count, np.uint64)
    for number, offset in enumerate([*range(0, size - 8, 8), size - 8]):
        keys += _eight_bytes(values, offset, count) * _multiplier(number)
    return keys


def word_sequence_keys(words: Any, length: int) -> Any:
    """The same for hashes of words."""
    count = len(words) - length + 1
    if count <= 0:
        return np.zeros(0, np.uint64)
    keys = words[:count].copy()
    for step in range(1, length):
        keys *= np.uint64(_ODD)
        keys += words[step : step + count]
    return keys


class Words(Struct, frozen=True, eq=False):
    hashes: Any
    counts: Any  # of each row


def hashed_words(text: Text) -> Words:
    """Lower-case words of each row without special characters at their ends."""
    text = _lowered(text)
    starts, ends = word_spans(text)
    padded = np.concatenate((np.frombuffer(text.data.tobytes().lower(), np.uint8), np.zeros(8, np.uint8)))
    eight = _eight_bytes(padded, 0, text.size)
    lengths = ends - starts
    hashes = lengths.astype(np.uint64) * _multiplier(0)
    left, places, index = lengths, starts, None
    masks = np.array([2 ** (8 * size) - 1 for size in range(9)], np.uint64)
    for number in range(1, _LONG_WORD // 8 + 1):
        part = (eight[places] & masks[np.minimum(left, 8)]) * _multiplier(number)
        if index is None:
            hashes += part
        else:
            hashes[index] += part
        chosen = np.flatnonzero(left > 8)
        if not len(chosen):
            break
        index = chosen if index is None else index[chosen]
        left, places = left[chosen] - 8, places[chosen] + 8
    for word in np.flatnonzero(lengths > _LONG_WORD).tolist():
        hashes[word] = hash(padded[starts[word] : ends[word]].tobytes()) & (2**64 - 1)
    hashes ^= hashes >> np.uint64(29)
    hashes *= np.uint64(_ODD)
    hashes ^= hashes >> np.uint64(32)
    bounds = np.searchsorted(starts, text.offsets)
    return Words(hashes, np.diff(bounds))


_CHANGED_BY_LOWER = 1
_cases = CharacterClasses(lambda character: int(not character.isascii() and character.lower() != character))


def _lowered(text: Text) -> Text:
    """Only what is not ASCII: that is done to all rows at once."""
    if text.is_ascii:
        return text
    rows = np.flatnonzero(count_rows(_cases.bits(text, _CHANGED_BY_LOWER), text.offsets))
    return Text(with_rows(text, {row: text.row(row).lower() for row in rows.tolist()}))


def _eight_bytes(values: Any, offset: int, count: int) -> Any:
    """From each value on, as one number."""
    return np.ndarray((count,), "<u8", values, offset, (values.itemsize,))


def _multiplier(number: int) -> Any:
    mixed = (number + 1) * _ODD & (2**64 - 1)
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 & (2**64 - 1)
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & (2**64 - 1)
    return np.uint64((mixed ^ (mixed >> 31)) | 1)
