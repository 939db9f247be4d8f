"""A text column as bytes: what vectorised operators work on."""

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from joblens.data.base.operator import RowErrors
from joblens.data.base.rows import with_column
from joblens.data.texts.bits import BLOCK, Bits

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
        raise RowErrors(dict.fromkeys(missing.tolist(), f"the row has no '{key}'"))
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
