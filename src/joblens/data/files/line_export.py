"""Rows that came from JSON lines, as lines again: fields that operators changed are put back into the line,
and everything else leaves as it came. What becomes of a line depends on that line alone, so that the export
does not depend on which lines it was worked on with."""

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from joblens.data.base.rows import LINE, STATS_PREFIX
from joblens.data.files.json_lines import NEWLINE, begin_and_end_objects, binary_over
from joblens.data.files.line_fields import STATS_FIELD, with_fields

__all__ = ["STATS_FIELD", "escaped", "lines_of"]

_AT_ONCE = 1 << 20  # bytes of lines; what is made of them stays in the processor's cache
_LOOKED_AT_ONCE = 1 << 16
_QUOTE = 0x22
_FEW = 16  # lines, among which the one that is not plain is not searched for any more
_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\b": "\\b", "\f": "\\f"}
_BACKSLASH = 0x5C


def lines_of(batch: Any, changed: Sequence[str], stats: Sequence[str]) -> Iterator[Any]:
    """Buffers that are the lines of all rows when they are written one after the other."""
    for part in _parts(batch):
        if not changed and not stats:
            yield _bytes_of(part.column(LINE))
        elif len(changed) == 1 and not stats:
            yield from _with_texts(part, changed[0])
        else:
            yield b"".join(_one_by_one(part, changed, stats))


def _with_texts(part: Any, name: str) -> Iterator[Any]:
    """All at once; where a line is in the way of that, its neighbours without it."""
    found = _spliced(part.column(LINE), name, part.column(name))
    if found is not None:
        yield from found
    elif part.num_rows <= _FEW:
        yield b"".join(_one_by_one(part, [name], ()))
    else:
        half = part.num_rows // 2
        yield from _with_texts(part.slice(0, half), name)
        yield from _with_texts(part.slice(half), name)


def _parts(batch: Any) -> Iterator[Any]:
    if not batch.num_rows:
        return
    offsets = _offsets(batch.column(LINE))
    size = int(offsets[-1] - offsets[0])
    cuts = np.searchsorted(offsets - offsets[0], np.arange(_AT_ONCE, size, _AT_ONCE))
    edges = np.unique(np.concatenate([[0], cuts, [batch.num_rows]])).tolist()
    for start, end in itertools.pairwise(edges):
        yield batch.slice(start, end - start)


def _offsets(array: Any) -> Any:
    return np.frombuffer(array.buffers()[1], np.int64, len(array) + 1, array.offset * 8)


def _bytes_of(array: Any) -> Any:
    """What all values of a LargeBinary or LargeString array are, one behind the other."""
    offsets = _offsets(array)
    start, end = int(offsets[0]), int(offsets[-1])
    data = array.buffers()[2]
    return data.slice(start, end - start) if end > start else b""


def _spliced(lines: Any, name: str, texts: Any) -> list[Any] | None:
    """The fast way, for one text field that every line has. None: at least one line is not so plain."""
    if texts.null_count or not pa.types.is_large_string(texts.type):
        return None
    data = _bytes_of(lines)
    places = _text_places(data, lines, name)
    if places is None:
        return None
    # Between two texts lies the end of one line and the beginning of the next, which stays as it is.
    around = binary_over(data, np.concatenate([[0], places, [data.size]]))
    count = len(lines)
    kept = around.take(pa.array(np.arange(0, 2 * count + 1, 2)))
    inside = _rewritten(around, texts, data)
    nothing = pa.scalar(b"", pa.large_binary())
    joined = pc.binary_join_element_wise(kept.slice(0, count), inside, nothing)
    return [_bytes_of(joined), _bytes_of(kept.slice(count, 1))]


def _rewritten(around: Any, texts: Any, data: Any) -> Any:
    """The texts as they are to be written. Those that are what they were stay written as they were."""
    now = escaped(texts).cast(pa.large_binary())
    if not _has_other_escapes(data):
        return now
    before = around.take(pa.array(np.arange(1, 2 * len(texts), 2)))
    candidates = pc.and_(pc.not_equal(before, now), pc.match_substring_regex(before, r"\\[u/]"))
    places = np.flatnonzero(candidates.to_numpy(zero_copy_only=False))
    if not len(places):
        return now
    read = _texts.decode(b'["' + b'","'.join(before.take(pa.array(places)).to_pylist()) + b'"]')
    is_same = pc.equal(pa.array(read, pa.large_string()), texts.take(pa.array(places)))
    stays = np.zeros(len(texts), dtype=bool)
    stays[places[is_same.to_numpy(zero_copy_only=False)]] = True
    return pc.if_else(pa.array(stays), before, now)


def _has_other_escapes(data: Any) -> bool:
    """`\\u` and `\\/`: only with these can a text be written in another way than `escaped` writes it."""
    numbers = np.frombuffer(data, np.uint8)
    escaping = np.flatnonzero(numbers[:-1] == _BACKSLASH)
    behind = numbers[escaping + 1]
    return bool(((behind == ord("u")) | (behind == ord("/"))).any())


def _text_places(data: Any, lines: Any, name: str) -> Any:
    """Where the text begins and ends in each line, behind and before its quotes."""
    numbers = np.frombuffer(data, np.uint8)
    offsets = _offsets(lines)
    offsets = offsets - offsets[0]
    if not begin_and_end_objects(numbers, offsets[:-1], offsets[1:]):
        return None
    try:
        rows = _raw_decoder(name).decode_lines(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    if len(rows) != len(lines):
        return None
    buffer = pa.py_buffer
    # What was found are views of the data, so that where they lie is where the text lies.
    begins = np.array([buffer(row.value).address for row in rows], np.int64) - data.address
    sizes = np.array([len(row.value) for row in rows], np.int64)
    is_there = (begins >= 0).all() and (begins + sizes <= data.size).all()
    if not (is_there and (numbers[begins] == _QUOTE).all()):
        return None
    return np.stack([begins + 1, begins + sizes - 1], axis=1).reshape(-1)


_texts = msgspec.json.Decoder(list[str])


@functools.cache
def _raw_decoder(name: str) -> Any:
    field = ("value", msgspec.Raw, msgspec.field(name=name))
    return msgspec.json.Decoder(msgspec.defstruct("Wanted", [field], gc=False))


def escaped(texts: Any) -> Any:
    """As they are written between the quotes of a JSON string."""
    data = bytes(_bytes_of(texts))
    if b"\\" in data:
        texts = pc.replace_substring(texts, "\\", "\\\\")
    if b'"' in data:
        texts = pc.replace_substring(texts, '"', '\\"')
    for code in _controls(data):
        texts = pc.replace_substring(texts, chr(code), _SHORT.get(chr(code), f"\\u{code:04x}"))
    return texts


def _controls(data: bytes) -> list[int]:
    """Which characters below the space there are."""
    numbers = np.frombuffer(data, np.uint8)
    is_control = np.empty(_LOOKED_AT_ONCE, np.bool_)
    count = 0
    for at in range(0, len(numbers), _LOOKED_AT_ONCE):
        block = numbers[at : at + _LOOKED_AT_ONCE]
        count += int(np.count_nonzero(np.less(block, 0x20, out=is_control[: len(block)])))
    if count == data.count(b"\n"):  # as nearly always
        return [NEWLINE] if count else []
    return [code for code in range(0x20) if bytes([code]) in data]


def _one_by_one(part: Any, changed: Sequence[str], stats: Sequence[str]) -> Iterator[bytes]:
    """For what the fast way cannot do."""
    columns = {name: part.column(name).to_pylist() for name in changed}
    numbers = {name: part.column(STATS_PREFIX + name).to_pylist() for name in stats}
    for at, line in enumerate(part.column(LINE).to_pylist()):
        fields = {name: values[at] for name, values in columns.items()}
        found = {name: values[at] for name, values in numbers.items()}
        yield with_fields(line, fields, found)
