"""Text column as bytes: bit sets per character class, and splicing of replaced bytes."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from joblens.data.base.operator import RowErrors
from joblens.data.rows.batch import with_column

BLOCK = 1 << 18  # bytes per block, so that intermediate data stays in the CPU cache


class Bits:
    """Bit set, filled block by block, then queried. Bits behind the last byte are zero."""

    def __init__(self, size: int) -> None:
        self._bytes = np.zeros((size // 64 + 1) * 8, np.uint8)

    def fill(self, start: int, mask: Any) -> None:
        """Sets bits from `start`, a block boundary, where `mask` is not zero."""
        packed = np.packbits(mask, bitorder="little")
        self._bytes[start // 8 : start // 8 + len(packed)] = packed

    def set(self, at: Any) -> None:
        np.bitwise_or.at(self._bytes, at >> 3, (1 << (at & 7)).astype(np.uint8))

    @property
    def words(self) -> Any:
        return self._bytes.view("<u8")


def of_words(words: Any) -> Bits:
    bits = Bits(0)
    bits._bytes = np.ascontiguousarray(words).view(np.uint8)  # noqa: SLF001 - its own kind
    return bits


def count_before(bits: Bits, at: Any) -> Any:
    """Counts the set bits before each of these positions."""
    words = bits.words
    sums = np.zeros(len(words) + 1, np.int64)
    np.cumsum(np.bitwise_count(words), out=sums[1:])
    index = at >> 6
    below = (np.uint64(1) << (at & 63).astype(np.uint64)) - np.uint64(1)
    return sums[index] + np.bitwise_count(words[index] & below)


def count_rows(bits: Bits, offsets: Any) -> Any:
    """Counts the set bits in each row."""
    return np.diff(count_before(bits, offsets))


def positions(bits: Bits, size: int) -> Any:
    return np.flatnonzero(np.unpackbits(bits.words.view(np.uint8), count=size, bitorder="little"))


def runs_end(starts: Any, runs: Any) -> Any:
    """Carries `starts`, bits inside `runs`, to the first bit behind each run.

    Other bits of the result are undefined inside runs.
    """
    total = starts + runs
    carry = total < starts
    while carry.any():
        into = np.zeros(len(total), np.uint64)
        into[1:] = carry[:-1]
        total = total + into
        carry = (total == 0) & (into == 1)
    return total


def shifted(words: Any) -> Any:
    """Moves every bit one position up."""
    moved = words << np.uint64(1)
    moved[1:] |= words[:-1] >> np.uint64(63)
    return moved


_REVERSED = np.packbits(np.unpackbits(np.arange(256, dtype=np.uint8)), bitorder="little")


def reversed_bits(words: Any) -> Any:
    """Reverses the bits."""
    return _REVERSED[words.view(np.uint8)[::-1]].view("<u8")


def last_before(bits: Bits, at: Any) -> Any:
    """Returns the last set bit before each position; -1: none."""
    words = bits.words
    filled = np.where(words != 0, np.arange(len(words)), -1)
    nearest = np.maximum.accumulate(filled)
    index = at >> 6
    below = words[index] & ((np.uint64(1) << (at & 63).astype(np.uint64)) - np.uint64(1))
    earlier = np.where(index > 0, nearest[index - 1], -1)
    word_index = np.where(below != 0, index, earlier)
    word = np.where(below != 0, below, words[word_index])
    for step in (1, 2, 4, 8, 16, 32):
        word |= word >> np.uint64(step)
    return np.where(word_index >= 0, word_index * 64 + np.bitwise_count(word) - 1, -1)


def first_from(bits: Bits, at: Any, size: int) -> Any:
    """Returns the first set bit at or behind each position; `size`: none."""
    words = bits.words
    filled = np.where(words != 0, np.arange(len(words)), len(words))
    nearest = np.append(np.minimum.accumulate(filled[::-1])[::-1], len(words))
    index = at >> 6
    above = words[index] & (np.uint64(2**64 - 1) << (at & 63).astype(np.uint64))
    word_index = np.where(above != 0, index, nearest[index + 1])
    word = np.where(above != 0, above, words[np.minimum(word_index, len(words) - 1)])
    lowest = np.bitwise_count((word & (~word + np.uint64(1))) - np.uint64(1))
    return np.where(word_index < len(words), word_index * 64 + lowest, size)


_PAGE = 1 << 12  # code points per page of the lookup table


class Text:
    """UTF-8 of all rows, concatenated; row i is data[offsets[i]:offsets[i+1]]."""

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
        """Returns the number of characters per row."""
        if self.is_ascii:
            return np.diff(self.offsets)
        return pc.utf8_length(self.array).to_numpy()

    def rows_of(self, at: Any) -> Any:
        """Returns the row that each byte belongs to."""
        return np.searchsorted(self.offsets, at, side="right") - 1

    def first_bytes(self) -> Any:
        """Returns the starts of rows that are not empty."""
        starts = self.offsets[:-1]
        return starts[starts < self.offsets[1:]]

    def last_bytes(self) -> Any:
        ends = self.offsets[1:]
        return ends[ends > self.offsets[:-1]] - 1

    def groups(self, size: int) -> Iterator[tuple[int, int]]:
        """Yields ranges of rows of about so many bytes."""
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
    """Returns a column as Text. Raises RowErrors for rows without text."""
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
    """Returns the batch with `array` in place of its text; the same batch if it is unchanged."""
    if array is text.array:
        return batch
    kind = batch.schema.field(key).type
    return with_column(batch, key, array if array.type == kind else array.cast(kind))


def text_array(data: Any, offsets: Any) -> Any:
    """Builds an array from bytes (any buffer) and int64 offsets."""
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_string(), len(offsets) - 1, buffers)


def _is_text(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def code_points(data: Any, leads: Any) -> Any:
    """Decodes the multi-byte characters that start at these positions."""
    lead = data[leads].astype(np.int64)
    found = lead & 0x1F
    for length, bits in ((2, 0x1F), (3, 0x0F), (4, 0x07)):
        low, high = {2: (0xC0, 0xE0), 3: (0xE0, 0xF0), 4: (0xF0, 0x100)}[length]
        chosen = (lead >= low) & (lead < high)
        everything = bool(chosen.all())
        if not everything and not chosen.any():
            continue
        at = leads if everything else leads[chosen]
        value = (lead if everything else lead[chosen]) & bits
        for step in range(1, length):
            value = (value << 6) | (data[at + step] & 0x3F)
        if everything:
            return value
        found[chosen] = value
    return found


def character_sizes(leads: Any) -> Any:
    """Returns the size in bytes of characters with these first bytes."""
    return 1 + (leads >= 0xC0).astype(np.int64) + (leads >= 0xE0) + (leads >= 0xF0)


class CharacterClasses:
    """A small number per character. Bytes inside a character have the class `inside`."""

    def __init__(self, classify: Callable[[str], int], inside: int = 0) -> None:
        self._classify = classify
        ascii_classes = bytes(classify(chr(code)) for code in range(128))
        self._ascii = ascii_classes + bytes([inside]) * 128
        self._classes = np.zeros(0, np.uint8)
        self._has_page = np.zeros(0x110000 // _PAGE, bool)

    def blocks(self, text: Text) -> Iterator[tuple[int, Any]]:
        """Yields (first byte, classes of the block's bytes); a character's class is at its first byte."""
        for start in range(0, text.size, BLOCK):
            piece = text.data[start : start + BLOCK]
            classes = np.frombuffer(bytearray(piece).translate(self._ascii), np.uint8)
            if not text.is_ascii:
                leads = np.flatnonzero(piece >= 0xC0)
                if len(leads):
                    classes[leads] = self.of(code_points(text.data, leads + start))
            yield start, classes

    def bits(self, text: Text, wanted_class: int) -> Bits:
        """Returns a bit set of the first bytes of characters of class `wanted_class`."""
        bits = Bits(text.size)
        for start, classes in self.blocks(text):
            bits.fill(start, classes == wanted_class)
        return bits

    def of(self, points: Any) -> Any:
        """Returns the classes of code points."""
        if not len(self._classes):
            self._classes = np.zeros(0x110000, np.uint8)
        pages = np.bincount(points >> 12, minlength=len(self._has_page)).astype(bool)
        for page in np.flatnonzero(pages & ~self._has_page).tolist():
            codes = range(page * _PAGE, (page + 1) * _PAGE)
            self._classes[codes.start : codes.stop] = [self._classify(chr(code)) for code in codes]
            self._has_page[page] = True
        return self._classes[points]


def spliced(text: Text, starts: Any, ends: Any, replacements: Sequence[bytes]) -> Any:
    """Replaces data[starts[i]:ends[i]]. Slices are sorted, disjoint, not empty, and each within one row."""
    content = memoryview(text.data)
    pieces: list[bytes | memoryview] = []
    position = 0
    for start, end, replacement in zip(starts.tolist(), ends.tolist(), replacements, strict=True):
        pieces.append(content[position:start])
        pieces.append(replacement)
        position = end
    pieces.append(content[position:])
    growth = np.zeros(len(starts) + 1, np.int64)
    lengths = np.fromiter(map(len, replacements), np.int64, len(replacements))
    np.cumsum(lengths - (ends - starts), out=growth[1:])
    offsets = text.offsets + growth[np.searchsorted(starts, text.offsets, side="left")]
    return text_array(b"".join(pieces), offsets)


class CharacterReplacer:
    """Replaces single characters by texts that are not longer in bytes."""

    def __init__(self, replacements: dict[str, str]) -> None:
        self._texts = sorted(set(replacements.values()))
        numbers = {text: number for number, text in enumerate(self._texts, 1)}
        classes = {old: numbers[new] for old, new in replacements.items()}
        self._classes = CharacterClasses(lambda character: classes.get(character, 0))
        self._ascii = [
            (ord(old), ord(new)) for old, new in replacements.items() if old.isascii() and old != new
        ]

    def replaced(self, text: Text) -> Any:
        """Returns the column; the same array if there is nothing to replace."""
        ascii_positions = [(np.flatnonzero(text.data == old), new) for old, new in self._ascii]
        leads, classes = self._others(text)
        if not len(leads) and not any(len(at) for at, _ in ascii_positions):
            return text.array
        data = text.data.copy()
        for at, new in ascii_positions:
            data[at] = new
        if not len(leads):
            return text_array(data, text.offsets)
        return self._shortened(text, data, leads, classes)

    def _others(self, text: Text) -> tuple[Any, Any]:
        """Returns the starts of non-ASCII characters to replace, and the index of each replacement."""
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
            at = leads[classes == number]
            for step, byte in enumerate(new.encode()):
                data[at + step] = byte
        lost = np.zeros(len(leads) + 1, np.int64)
        np.cumsum(sizes - lengths, out=lost[1:])
        return text_array(data[keep], text.offsets - lost[np.searchsorted(leads, text.offsets, side="left")])
