"""Repetition filters: repeated sequences of characters or words."""

import itertools
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct

from joblens.data.base.operator import Filter
from joblens.data.rows.ranges import refuse_tokenization, within
from joblens.data.texts.pattern_replacement import with_rows
from joblens.data.texts.text_view import CharacterClasses, Text, count_rows, text_of
from joblens.data.texts.words import word_spans

# Odd multipliers without a pattern: sequences are hashed by sums of products with them, modulo 2^64.
_ODD = 0x9E3779B97F4A7C15
_LONG_WORD = 256  # bytes; longer words are hashed one by one


class Repeats(Struct, frozen=True, eq=False):
    """Sequences that occur more than once: their row, and how often. `totals`: the number of sequences per
    row; `distinct`: the number of different ones."""

    rows: Any
    times: Any
    totals: Any
    distinct: Any


def find_repeats(keys: Any, counts: Any) -> Repeats:
    """Finds repeated sequences. `keys`: the sequences of all rows, concatenated, `counts` per row. Sorts them
    in place, row by row: small rows fit the cache, and keys need no bits for their row."""
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
    """Concatenates `counts` keys from each of `starts`, without those that reach into the next row."""
    pairs = zip(starts.tolist(), counts.tolist(), strict=True)
    return np.concatenate([keys[:0], *(keys[start : start + count] for start, count in pairs)])


def sequence_keys(values: Any, length: int) -> Any:
    """Returns a hash for every window of `length` values of an array of bytes or uint32 that is padded with 8
    bytes. Different windows collide with a probability of about 2^-64."""
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
    """Returns a hash for every window of `length` word hashes."""
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
    counts: Any  # per row


def hashed_words(text: Text) -> Words:
    """Hashes the lower-case words of each row, without special characters at their ends."""
    text = _lowered(text)
    starts, ends = word_spans(text)
    padded = np.concatenate((np.frombuffer(text.data.tobytes().lower(), np.uint8), np.zeros(8, np.uint8)))
    eight = _eight_bytes(padded, 0, text.size)
    lengths = ends - starts
    hashes = lengths.astype(np.uint64) * _multiplier(0)
    sizes_left, offsets_now, index = lengths, starts, None
    masks = np.array([2 ** (8 * size) - 1 for size in range(9)], np.uint64)
    for number in range(1, _LONG_WORD // 8 + 1):
        part = (eight[offsets_now] & masks[np.minimum(sizes_left, 8)]) * _multiplier(number)
        if index is None:
            hashes += part
        else:
            hashes[index] += part
        chosen = np.flatnonzero(sizes_left > 8)
        if not len(chosen):
            break
        index = chosen if index is None else index[chosen]
        sizes_left, offsets_now = sizes_left[chosen] - 8, offsets_now[chosen] + 8
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
    """Lowers only non-ASCII characters; the caller lowers ASCII in all rows at once."""
    if text.is_ascii:
        return text
    rows = np.flatnonzero(count_rows(_cases.bits(text, _CHANGED_BY_LOWER), text.offsets))
    return Text(with_rows(text, {row: text.row(row).lower() for row in rows.tolist()}))


def _eight_bytes(values: Any, offset: int, count: int) -> Any:
    """Returns the eight bytes that start at each value, as one number."""
    return np.ndarray((count,), "<u8", values, offset, (values.itemsize,))


def _multiplier(number: int) -> Any:
    mixed = (number + 1) * _ODD & (2**64 - 1)
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 & (2**64 - 1)
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & (2**64 - 1)
    return np.uint64((mixed ^ (mixed >> 31)) | 1)


_CHARACTER_GROUP = 1 << 17  # bytes of rows per group: their keys fit the processor's cache


class CharacterRepetitionFilter(Filter):
    """Keeps texts by the share of their most frequent repeated sequences of `rep_len` characters. Counts at
    most the square root of the number of different sequences."""

    name = "character_repetition_filter"

    def __init__(
        self,
        *,
        rep_len: Annotated[int, msgspec.Meta(ge=1)] = 10,
        min_ratio: float = 0.0,
        max_ratio: float = 0.5,
    ) -> None:
        self.rep_len = rep_len
        self.min_ratio = min_ratio
        self.max_ratio = max_ratio

    def stats(self, batch: Any) -> dict[str, Any]:
        text = text_of(batch, self.text_key)
        ratios = [self._ratios(text, first, end) for first, end in text.groups(_CHARACTER_GROUP)]
        return {"char_rep_ratio": pa.array(np.concatenate([np.zeros(0), *ratios]), pa.float64())}

    def keep(self, stats: dict[str, Any]) -> Any:
        return within(self, stats["char_rep_ratio"], self.min_ratio, self.max_ratio)

    def _ratios(self, text: Text, first: int, end: int) -> Any:
        content = text.data[text.offsets[first] : text.offsets[end]].tobytes()
        lengths = text.lengths[first:end]
        if content.isascii():
            values = np.frombuffer(content + bytes(8), np.uint8)
        else:
            values = np.frombuffer(content.decode().encode("utf-32-le") + bytes(8), "<u4")
        keys = sequence_keys(values, self.rep_len)
        counts = np.maximum(lengths - self.rep_len + 1, 0)
        keys = parts_of(keys, np.cumsum(lengths) - lengths, counts)
        return _share_of_most_frequent(find_repeats(keys, counts))


def _share_of_most_frequent(found: Repeats) -> Any:
    row_count = len(found.totals)
    several = np.bincount(found.rows, minlength=row_count)
    counted = np.minimum(np.sqrt(found.distinct).astype(np.int64), several)
    order = np.lexsort((-found.times, found.rows))
    first = np.cumsum(several) - several
    rank = np.arange(len(order)) - first[found.rows]
    chosen = order[rank < counted[found.rows]]
    sums = np.bincount(found.rows[chosen], weights=found.times[chosen], minlength=row_count)
    return sums / np.maximum(found.totals, 1)


_WORD_GROUP = 1 << 20  # bytes of rows per group


class WordRepetitionFilter(Filter):
    """Keeps texts by the share of sequences of `rep_len` words that occur more than once."""

    name = "word_repetition_filter"

    def __init__(
        self,
        *,
        lang: str = "en",
        tokenization: bool = False,
        rep_len: Annotated[int, msgspec.Meta(ge=1)] = 10,
        min_ratio: float = 0.0,
        max_ratio: float = 0.5,
    ) -> None:
        self.lang = lang
        self.tokenization = tokenization
        self.rep_len = rep_len
        self.min_ratio = min_ratio
        self.max_ratio = max_ratio

    def check(self) -> None:
        refuse_tokenization(self.name, is_wanted=self.tokenization)

    def stats(self, batch: Any) -> dict[str, Any]:
        text = text_of(batch, self.text_key)
        parts = [text.array.slice(first, end - first) for first, end in text.groups(_WORD_GROUP)]
        ratios = [self._ratios(Text(part)) for part in parts]
        return {"word_rep_ratio": pa.array(np.concatenate([np.zeros(0), *ratios]), pa.float64())}

    def _ratios(self, text: Text) -> Any:
        words = hashed_words(text)
        counts = np.maximum(words.counts - self.rep_len + 1, 0)
        starts = np.cumsum(words.counts) - words.counts
        keys = parts_of(word_sequence_keys(words.hashes, self.rep_len), starts, counts)
        found = find_repeats(keys, counts)
        return np.bincount(found.rows, weights=found.times, minlength=len(counts)) / np.maximum(counts, 1)

    def keep(self, stats: dict[str, Any]) -> Any:
        return within(self, stats["word_rep_ratio"], self.min_ratio, self.max_ratio)
