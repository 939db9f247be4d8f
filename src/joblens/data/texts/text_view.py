"""Text column as bytes: bit sets per character class, and splicing of replaced bytes."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from joblens.data.base.operator import RowErrors
from joblens.data.rows.batch import with_column

BLOCK = 1 << 18  # bytes worked on at once, so that what comes between stays in the processor's cache


class Bits:
    """Filled block by block, then asked. Bits behind the last byte are zero."""

    def __init__(self, size: int) -> None:
        self._bytes = np.zeros((size // 64 + 1) * 8, np.uint8)

    def fill(self, start: int, mask: Any) -> None:
        """`mask`: something that is zero where the bit is, from byte `start` on, which is a block's."""
        packed = np.packbits(mask, bitorder="little")
        self._bytes[start // 8 : start // 8 + len(packed)] = packed

    def set(self, positions: Any) -> None:
        np.bitwise_or.at(self._bytes, positions >> 3, (1 << (positions & 7)).astype(np.uint8))

    @property
    def words(self) -> Any:
        return self._bytes.view("<u8")


def of_words(words: Any) -> Bits:
    bits = Bits(0)
    bits._bytes = np.ascontiguousarray(words).view(np.uint8)  # noqa: SLF001 - its own kind
    return bits


def count_before(bits: Bits, positions: Any) -> Any:
    """How many bits are set before each of these positions."""
    words = bits.words
    sums = np.zeros(len(words) + 1, np.int64)
    np.cumsum(np.bitwise_count(words), out=sums[1:])
    index = positions >> 6
    below = (np.uint64(1) << (positions & 63).astype(np.uint64)) - np.uint64(1)
    return sums[index] + np.bitwise_count(words[index] & below)


def count_rows(bits: Bits, offsets: Any) -> Any:
    """How many are set in each row."""
    return np.diff(count_before(bits, offsets))


def positions(bits: Bits, size: int) -> Any:
    return np.flatnonzero(np.unpackbits(bits.words.view(np.uint8), count=size, bitorder="little"))


def runs_end(starts: Any, runs: Any) -> Any:
    """Words of bits: `runs` with those of `starts`, which lie in them, carried to the first bit behind each
    run. Other bits of the answer mean nothing inside runs."""
    total = starts + runs
    carry = total < starts
    while carry.any():
        into = np.zeros(len(total), np.uint64)
        into[1:] = carry[:-1]
        total = total + into
        carry = (total == 0) & (into == 1)
    return total


def shifted(words: Any) -> Any:
    """Every bit one place on."""
    moved = words << np.uint64(1)
    moved[1:] |= words[:-1] >> np.uint64(63)
    return moved


_REVERSED = np.packbits(np.unpackbits(np.arange(256, dtype=np.uint8)), bitorder="little")


def reversed_bits(words: Any) -> Any:
    """Read from the end."""
    return _REVERSED[words.view(np.uint8)[::-1]].view("<u8")


def last_before(bits: Bits, places: Any) -> Any:
    """The last set bit before each place; -1 where there is none."""
    words = bits.words
    filled = np.where(words != 0, np.arange(len(words)), -1)
    nearest = np.maximum.accumulate(filled)
    index = places >> 6
    below = words[index] & ((np.uint64(1) << (places & 63).astype(np.uint64)) - np.uint64(1))
    earlier = np.where(index > 0, nearest[index - 1], -1)
    word_index = np.where(below != 0, index, earlier)
    word = np.where(below != 0, below, words[word_index])
    for step in (1, 2, 4, 8, 16, 32):
        word |= word >> np.uint64(step)
    return np.where(word_index >= 0, word_index * 64 + np.bitwise_count(word) - 1, -1)


def first_from(bits: Bits, places: Any, size: int) -> Any:
    """The first set bit at each place or behind it; `size` where there is none."""
    words = bits.words
    filled = np.where(words != 0, np.arange(len(words)), len(words))
    nearest = np.append(np.minimum.accumulate(filled[::-1])[::-1], len(words))
    index = places >> 6
    above = words[index] & (np.uint64(2**64 - 1) << (places & 63).astype(np.uint64))
    word_index = np.where(above != 0, index, nearest[index + 1])
    word = np.where(above != 0, above, words[np.minimum(word_index, len(words) - 1)])
    lowest = np.bitwise_count((word & (~word + np.uint64(1))) - np.uint64(1))
    return np.where(word_index < len(words), word_index * 64 + lowest, size)


_PAGE = 1 << 12  # code points whose classes are looked up together


class Text:
    """UTF-8 of all rows behind one another; row i is data[offsets[i]:offsets[i+1]]."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.rows = len(array)
        self.offsets: Any
        self.data: Any
        _, ends, content = array.buffers()
        if not self.rows or content is None:
            self.offsets, self.data = np.zeros(self.rows + 1, np.int64), np.zeros(0, np.uint8)
            return
        offsets = np.frombuffer(ends, np.int64)[array.offset : array.offset + self.rows + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        self.offsets = offsets - first if first else offsets
        self.data = np.frombuffer(content, np.uint8)[first:last]

    @property
    def size(self) -> int:
        return len(self.data)

    @cached_property
    def is_ascii(self) -> bool:
        return self.size == 0 or int(self.data.max()) < 0x80

    @cached_property
    def lengths(self) -> Any:
        """Characters of each row."""
        if self.is_ascii:
            return np.diff(self.offsets)
        return pc.utf8_length(self.array).to_numpy()

    def rows_of(self, places: Any) -> Any:
        """The row that each byte belongs to."""
        return np.searchsorted(self.offsets, places, side="right") - 1

    def first_bytes(self) -> Any:
        """Where rows that are not empty begin."""
        starts = self.offsets[:-1]
        return starts[starts < self.offsets[1:]]

    def last_bytes(self) -> Any:
        ends = self.offsets[1:]
        return ends[ends > self.offsets[:-1]] - 1

    def groups(self, size: int) -> Iterator[tuple[int, int]]:
        """Rows of about so many bytes together: the first, and the one behind the last."""
        first = 0
        while first < self.rows:
            end = int(np.searchsorted(self.offsets, self.offsets[first] + size, side="right")) - 1
            end = min(max(end, first + 1), self.rows)
            yield first, end
            first = end

    def row(self, index: int) -> str:
        piece: bytes = self.data[self.offsets[index] : self.offsets[index + 1]].tobytes()
        return piece.decode()


def text_of(batch: Any, key: str) -> Text:
    """Raises RowErrors for rows that have no text."""
    array = batch.column(key)
    if array.type != pa.large_string():
        if not _is_text(array.type):
            raise RowErrors(dict.fromkeys(range(len(array)), f"'{key}' is {array.type}, not text"))
        array = array.cast(pa.large_string())
    if array.null_count:
        missing = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))
        raise RowErrors(dict.fromkeys(missing.tolist(), f"missing field '{key}'"))
    return Text(array)


def with_text(batch: Any, key: str, text: Text, array: Any) -> Any:
    """The batch with `array` instead of the text that was taken from it; the same batch when that is it."""
    if array is text.array:
        return batch
    kind = batch.schema.field(key).type
    return with_column(batch, key, array if array.type == kind else array.cast(kind))


def text_array(data: Any, offsets: Any) -> Any:
    """Of bytes (anything with a buffer) and int64 offsets."""
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_string(), len(offsets) - 1, buffers)


def _is_text(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def code_points(data: Any, leads: Any) -> Any:
    """Of the characters of two bytes and more that begin there."""
    lead = data[leads].astype(np.int64)
    found = lead & 0x1F
    for length, bits in ((2, 0x1F), (3, 0x0F), (4, 0x07)):
        low, high = {2: (0xC0, 0xE0), 3: (0xE0, 0xF0), 4: (0xF0, 0x100)}[length]
        chosen = (lead >= low) & (lead < high)
        everything = bool(chosen.all())
        if not everything and not chosen.any():
            continue
        places = leads if everything else leads[chosen]
        value = (lead if everything else lead[chosen]) & bits
        for step in range(1, length):
            value = (value << 6) | (data[places + step] & 0x3F)
        if everything:
            return value
        found[chosen] = value
    return found


def character_sizes(leads: Any) -> Any:
    """Bytes of the characters that begin with these."""
    return 1 + (leads >= 0xC0).astype(np.int64) + (leads >= 0xE0) + (leads >= 0xF0)


class CharacterClasses:
    """A small number for every character. Bytes inside a character have the class `inside`."""

    def __init__(self, classify: Callable[[str], int], inside: int = 0) -> None:
        self._classify = classify
        ascii_classes = bytes(classify(chr(code)) for code in range(128))
        self._ascii = ascii_classes + bytes([inside]) * 128
        self._classes = np.zeros(0, np.uint8)
        self._has_page = np.zeros(0x110000 // _PAGE, bool)

    def blocks(self, text: Text) -> Iterator[tuple[int, Any]]:
        """(first byte, class of each byte of the block): of a character at its first byte."""
        for start in range(0, text.size, BLOCK):
            piece = text.data[start : start + BLOCK]
            classes = np.frombuffer(bytearray(piece).translate(self._ascii), np.uint8)
            if not text.is_ascii:
                leads = np.flatnonzero(piece >= 0xC0)
                if len(leads):
                    classes[leads] = self.of(code_points(text.data, leads + start))
            yield start, classes

    def bits(self, text: Text, wanted: int) -> Bits:
        """Set where a character of the class `wanted` begins."""
        bits = Bits(text.size)
        for start, classes in self.blocks(text):
            bits.fill(start, classes == wanted)
        return bits

    def of(self, points: Any) -> Any:
        """Classes of code points."""
        if not len(self._classes):
            self._classes = np.zeros(0x110000, np.uint8)
        seen = np.bincount(points >> 12, minlength=len(self._has_page)).astype(bool)
        for page in np.flatnonzero(seen & ~self._has_page).tolist():
            codes = range(page * _PAGE, (page + 1) * _PAGE)
            self._classes[codes.start : codes.stop] = [self._classify(chr(code)) for code in codes]
            self._has_page[page] = True
        return self._classes[points]


def spliced(text: Text, starts: Any, ends: Any, replacements: Sequence[bytes]) -> Any:
    """The column with data[starts[i]:ends[i]] replaced: pieces that are in order, do not touch one another's
    bytes, are not empty and each lie in one row."""
    content = memoryview(text.data)
    pieces: list[bytes | memoryview] = []
    place = 0
    for start, end, replacement in zip(starts.tolist(), ends.tolist(), replacements, strict=True):
        pieces.append(content[place:start])
        pieces.append(replacement)
        place = end
    pieces.append(content[place:])
    growth = np.zeros(len(starts) + 1, np.int64)
    lengths = np.fromiter(map(len, replacements), np.int64, len(replacements))
    np.cumsum(lengths - (ends - starts), out=growth[1:])
    offsets = text.offsets + growth[np.searchsorted(starts, text.offsets, side="left")]
    return text_array(b"".join(pieces), offsets)


class CharacterReplacer:
    """Replaces single characters by texts that are no longer than they are, in bytes."""

    def __init__(self, replacements: dict[str, str]) -> None:
        self._texts = sorted(set(replacements.values()))
        numbers = {text: number for number, text in enumerate(self._texts, 1)}
        classes = {old: numbers[new] for old, new in replacements.items()}
        self._classes = CharacterClasses(lambda character: classes.get(character, 0))
        self._ascii = [
            (ord(old), ord(new)) for old, new in replacements.items() if old.isascii() and old != new
        ]

    def replaced(self, text: Text) -> Any:
        """The column; the same array when there is nothing to replace."""
        ascii_places = [(np.flatnonzero(text.data == old), new) for old, new in self._ascii]
        leads, classes = self._others(text)
        if not len(leads) and not any(len(places) for places, _ in ascii_places):
            return text.array
        data = text.data.copy()
        for places, new in ascii_places:
            data[places] = new
        if not len(leads):
            return text_array(data, text.offsets)
        return self._shortened(text, data, leads, classes)

    def _others(self, text: Text) -> tuple[Any, Any]:
        """Where characters to be replaced begin that are not ASCII, and the number of what replaces each."""
        found = [(np.zeros(0, np.int64), np.zeros(0, np.uint8))]
        if not text.is_ascii:
            for start in range(0, text.size, BLOCK):
                leads = np.flatnonzero(text.data[start : start + BLOCK] >= 0xC0) + start
                classes = self._classes.of(code_points(text.data, leads))
                found.append((leads[classes > 0], classes[classes > 0]))
        return np.concatenate([leads for leads, _ in found]), np.concatenate([these for _, these in found])

    def _shortened(self, text: Text, data: Any, leads: Any, classes: Any) -> Any:
        sizes = character_sizes(data[leads])
        lengths = np.array([0, *(len(new.encode()) for new in self._texts)])[classes]
        keep = np.ones(text.size, bool)
        for step in range(4):
            keep[leads[(lengths <= step) & (step < sizes)] + step] = False
        for number, new in enumerate(self._texts, 1):
            places = leads[classes == number]
            for step, byte in enumerate(new.encode()):
                data[places + step] = byte
        lost = np.zeros(len(leads) + 1, np.int64)
        np.cumsum(sizes - lengths, out=lost[1:])
        return text_array(data[keep], text.offsets - lost[np.searchsorted(leads, text.offsets, side="left")])
