"""Texts made alike before they are compared: lower case, without edges of white space, without all that is
no letter. The rules are those of Python's strings; texts in ASCII, which is most of them, go through them
as one block of bytes."""

import itertools
import re
import string
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

_WHITE = " \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f"  # what str.strip takes of ASCII
_WHITE_BYTES = _WHITE.encode()
# White space as Unicode has it, digits, punctuation of ASCII. re's own \s also has four separators in it.
_NO_CHARACTER = re.compile(
    rf"[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\d{re.escape(string.punctuation)}]+"
)


class Texts(Struct, frozen=True, eq=False):
    """Texts behind one another in one block of UTF-8; text i ends where i + 1 begins."""

    data: Any  # uint8
    offsets: Any  # int64, one more than texts

    @property
    def count(self) -> int:
        return len(self.offsets) - 1

    def wide(self) -> Any:
        """Which have characters beyond ASCII, by number."""
        if not len(self.data) or self.data.max() < 0x80:
            return np.zeros(0, np.int64)
        places = np.flatnonzero(self.data >= 0x80)
        return np.unique(np.searchsorted(self.offsets, places, side="right") - 1)

    def slice(self, start: int, end: int) -> "Texts":
        offsets = self.offsets[start : end + 1]
        return Texts(self.data[offsets[0] : offsets[-1]], offsets - offsets[0])


def texts_of(column: Any) -> Texts:
    """An Arrow column of strings, without copying it where it is a large_string without nulls (which are
    empty texts here)."""
    if column.null_count:
        column = pc.fill_null(column, "")
    if column.type != pa.large_string():
        column = column.cast(pa.large_string())
    _, offsets, data = column.buffers()
    if not len(column):
        return Texts(np.zeros(0, np.uint8), np.zeros(1, np.int64))
    places = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    block = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    return Texts(block[places[0] : places[-1]], places - places[0])


def lowered(texts: Texts) -> Texts:
    """As str.lower does."""
    data = texts.data
    is_capital = (data - np.uint8(65)) < 26  # wraps around below "A"
    small = Texts(data + (is_capital.view(np.uint8) << 5), texts.offsets)
    wide = texts.wide()
    # What is no letter of ASCII has to be asked one by one, from the text as it was.
    return replaced(small, wide, [text.lower() for text in _strings(texts, wide)])


def without_pattern(texts: Texts, pattern: Any) -> Texts:
    """As pattern.sub("", text) does."""
    before = every_string(texts)
    after = [pattern.sub("", text) for text in before]
    changed = np.array([i for i, text in enumerate(after) if len(text) != len(before[i])], np.int64)
    return replaced(texts, changed, [after[i] for i in changed])


def only_characters(texts: Texts) -> Texts:
    """Without white space, digits and the punctuation of ASCII."""
    table = np.array([not _NO_CHARACTER.match(chr(code)) for code in range(128)] + [True] * 128)
    narrow = without_bytes(texts, table[texts.data])
    wide = texts.wide()
    return replaced(narrow, wide, [_NO_CHARACTER.sub("", text) for text in _strings(texts, wide)])


def without_bytes(texts: Texts, keep: Any) -> Texts:
    """Only the bytes for which `keep` is true."""
    data = texts.data[keep]
    dropped = np.flatnonzero(~keep)
    return Texts(data, texts.offsets - np.searchsorted(dropped, texts.offsets))


def stripped_bytes(texts: Texts) -> list[Any]:
    """Each by itself, as str.strip leaves it, as something that can be hashed."""
    view = memoryview(texts.data)
    offsets = texts.offsets.tolist()
    found: list[Any] = [view[start:end] for start, end in itertools.pairwise(offsets)]
    for i in _with_odd_edges(texts).tolist():
        found[i] = _stripped(bytes(found[i]))
    return found


def replaced(texts: Texts, which: Any, by: list[str]) -> Texts:
    """Other words for some of the texts, given by number in order."""
    return replaced_bytes(texts, which, [text.encode() for text in by])


def replaced_bytes(texts: Texts, which: Any, by: list[bytes]) -> Texts:
    if not len(which):
        return texts
    pieces: list[Any] = []
    done = 0
    for i, piece in zip(which.tolist(), by, strict=True):
        pieces += (texts.data[texts.offsets[done] : texts.offsets[i]], np.frombuffer(piece, np.uint8))
        done = i + 1
    pieces.append(texts.data[texts.offsets[done] :])
    lengths = np.diff(texts.offsets)
    lengths[which] = [len(piece) for piece in by]
    offsets = np.zeros(texts.count + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return Texts(np.concatenate(pieces), offsets)


def every_string(texts: Texts) -> list[str]:
    return _strings(texts, np.arange(texts.count))


def mapped_wide(texts: Texts, change: Callable[[str], bytes]) -> tuple[Any, list[bytes]]:
    """Which texts go beyond ASCII, and what `change` makes of each."""
    wide = texts.wide()
    return wide, [change(text) for text in _strings(texts, wide)]


def _strings(texts: Texts, which: Any) -> list[str]:
    view = memoryview(texts.data)
    starts, ends = texts.offsets[which].tolist(), texts.offsets[which + 1].tolist()
    return [str(view[start:end], "utf-8") for start, end in zip(starts, ends, strict=True)]


def _with_odd_edges(texts: Texts) -> Any:
    """Texts whose first or last byte may belong to white space."""
    is_plain = np.zeros(256, np.bool_)
    is_plain[0x21:0x80] = True
    filled = np.flatnonzero(np.diff(texts.offsets))
    first = texts.data[texts.offsets[filled]]
    last = texts.data[texts.offsets[filled + 1] - 1]
    return filled[~(is_plain[first] & is_plain[last])]


def _stripped(text: bytes) -> bytes:
    text = text.strip(_WHITE_BYTES)
    if text and (text[0] >= 0x80 or text[-1] >= 0x80):
        return text.decode().strip().encode()
    return text
