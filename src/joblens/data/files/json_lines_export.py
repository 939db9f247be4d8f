"""JSON lines export: puts changed fields back into their line, and writes tables as lines."""

import functools
import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from joblens.data.files.json_lines import NEWLINE, begin_and_end_objects, binary_over
from joblens.data.rows.batch import ADDED, LINE, STATS_PREFIX, added_to

STATS_FIELD = "__dj__stats__"  # field in which other tools expect the statistics of filters
_SPACE = " \t\r\n"
_encode = msgspec.json.Encoder().encode
_scan = json.JSONDecoder().raw_decode
_MISSING = (-1, -1)
_Span = tuple[int, int]  # start of a value, and the first byte behind it


def with_fields(line: bytes, fields: dict[str, Any], found: dict[str, Any]) -> bytes:
    """Returns the line with these values and the statistics of filters.

    Unchanged values keep their notation; new fields come last.
    """
    names = (*fields, STATS_FIELD) if found else tuple(fields)
    spans = _spans(line, names)
    edits: list[tuple[int, int, bytes]] = []
    added: list[bytes] = []
    if found:
        earlier = _value(line, spans[STATS_FIELD])
        fields = {**fields, STATS_FIELD: (earlier if isinstance(earlier, dict) else {}) | found}
    for name, value in fields.items():
        span = spans[name]
        if span == _MISSING:
            added.append(_encode(name) + b":" + _written(value))
        elif not _is_same(_value(line, span), value):
            edits.append((*span, _written(value)))
    for start, end, value in sorted(edits, reverse=True):
        line = line[:start] + value + line[end:]
    return _with_more(line, added) if added else line


def _with_more(line: bytes, added: list[bytes]) -> bytes:
    closing = line.rindex(b"}")
    before = line[:closing].rstrip()
    separator = b"" if before.endswith(b"{") else b","
    return before + separator + b",".join(added) + line[closing:]


def _spans(line: bytes, names: tuple[str, ...]) -> dict[str, _Span]:
    """Locates the last value of each name, which all readers use."""
    try:
        row = _decoder(names).decode(line)
    except (msgspec.DecodeError, RecursionError):
        return _scanned(line, names)
    data = pa.py_buffer(line)
    found: dict[str, _Span] = {}
    for name, value in zip(names, msgspec.structs.astuple(row), strict=True):
        if not isinstance(value, msgspec.Raw):
            found[name] = _MISSING
            continue
        # a view of the line
        start = pa.py_buffer(value).address - data.address
        found[name] = (start, start + len(value))
    return found


@functools.lru_cache(64)
def _decoder(names: tuple[str, ...]) -> Any:
    fields = [
        (f"field_{at}", msgspec.Raw, msgspec.field(name=name, default=None)) for at, name in enumerate(names)
    ]
    return msgspec.json.Decoder(msgspec.defstruct("Wanted", fields, gc=False))


def _scanned(line: bytes, names: tuple[str, ...]) -> dict[str, _Span]:
    """Locates values in lines that only Python can parse: with NaN, or an unpaired surrogate in another
    field."""
    text = line.decode()
    found = dict.fromkeys(names, _MISSING)
    at = _behind_space(text, _behind_space(text, 0) + 1)
    while text[at] == '"':
        name, at = _scan(text, at)
        start = _behind_space(text, _behind_space(text, at) + 1)
        _, at = _scan(text, start)
        if name in found:
            found[name] = (len(text[:start].encode()), len(text[:at].encode()))
        at = _behind_space(text, at)
        if text[at] == ",":
            at = _behind_space(text, at + 1)
    return found


def _behind_space(text: str, at: int) -> int:
    while text[at] in _SPACE:
        at += 1
    return at


def _value(line: bytes, span: _Span) -> Any:
    return None if span == _MISSING else json.loads(line[span[0] : span[1]])


def _written(value: Any) -> bytes:
    try:
        return _encode(value)
    except (UnicodeEncodeError, OverflowError):  # an unpaired surrogate, or more than 64 bits
        return json.dumps(value).encode()


def _is_same(one: Any, other: Any) -> bool:
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


__all__ = ["STATS_FIELD", "escaped", "lines_of"]

_AT_ONCE = 1 << 20  # bytes of lines; intermediate results stay in the CPU cache
_BLOCK = 1 << 16
_QUOTE = 0x22
_FEW = 16  # lines; in smaller groups the irregular one is not searched for
_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\b": "\\b", "\f": "\\f"}
_BACKSLASH = 0x5C


def lines_of(batch: Any, changed: Sequence[str], stats: Sequence[str]) -> Iterator[Any]:
    """Yields buffers that, concatenated, are the lines of all rows."""
    for part in _parts(batch):
        if not changed and not stats:
            yield _bytes_of(part.column(LINE))
        elif len(changed) == 1 and not stats:
            yield from _with_texts(part, changed[0])
        else:
            yield b"".join(_one_by_one(part, changed, stats))


def _with_texts(part: Any, name: str) -> Iterator[Any]:
    """Replaces texts in all lines at once; if a line is irregular, in the lines around it."""
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
    """Returns the concatenated values of a LargeBinary or LargeString array."""
    offsets = _offsets(array)
    start, end = int(offsets[0]), int(offsets[-1])
    data = array.buffers()[2]
    return data.slice(start, end - start) if end > start else b""


def _spliced(lines: Any, name: str, texts: Any) -> list[Any] | None:
    """Replaces one text field that every line has, in all lines at once. None: at least one line is
    irregular."""
    if texts.null_count or not pa.types.is_large_string(texts.type):
        return None
    data = _bytes_of(lines)
    spans = _text_edges(data, lines, name)
    if spans is None:
        return None
    # Between two texts are the end of one line and the start of the next, which stay unchanged.
    around = binary_over(data, np.concatenate([[0], spans, [data.size]]))
    count = len(lines)
    outer = around.take(pa.array(np.arange(0, 2 * count + 1, 2)))
    inside = _rewritten(around, texts, data)
    nothing = pa.scalar(b"", pa.large_binary())
    joined = pc.binary_join_element_wise(outer.slice(0, count), inside, nothing)
    return [_bytes_of(joined), _bytes_of(outer.slice(count, 1))]


def _rewritten(around: Any, texts: Any, data: Any) -> Any:
    """Returns the texts in JSON notation. Unchanged texts keep their notation."""
    now = escaped(texts).cast(pa.large_binary())
    if not _has_other_escapes(data):
        return now
    before = around.take(pa.array(np.arange(1, 2 * len(texts), 2)))
    candidates = pc.and_(pc.not_equal(before, now), pc.match_substring_regex(before, r"\\[u/]"))
    spans = np.flatnonzero(candidates.to_numpy(zero_copy_only=False))
    if not len(spans):
        return now
    read = _texts.decode(b'["' + b'","'.join(before.take(pa.array(spans)).to_pylist()) + b'"]')
    is_same = pc.equal(pa.array(read, pa.large_string()), texts.take(pa.array(spans)))
    stays = np.zeros(len(texts), dtype=bool)
    stays[spans[is_same.to_numpy(zero_copy_only=False)]] = True
    return pc.if_else(pa.array(stays), before, now)


def _has_other_escapes(data: Any) -> bool:
    r"""Returns whether there are `\u` or `\/`, the only escapes that `escaped` writes differently."""
    numbers = np.frombuffer(data, np.uint8)
    escaping = np.flatnonzero(numbers[:-1] == _BACKSLASH)
    behind = numbers[escaping + 1]
    return bool(((behind == ord("u")) | (behind == ord("/"))).any())


def _text_edges(data: Any, lines: Any, name: str) -> Any:
    """Returns the start and end of the text in each line, inside its quotes."""
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
    # The results are views of the data, so their offsets locate the text.
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
    """Returns texts as written between the quotes of a JSON string."""
    data = bytes(_bytes_of(texts))
    if b"\\" in data:
        texts = pc.replace_substring(texts, "\\", "\\\\")
    if b'"' in data:
        texts = pc.replace_substring(texts, '"', '\\"')
    for code in _controls(data):
        texts = pc.replace_substring(texts, chr(code), _SHORT.get(chr(code), f"\\u{code:04x}"))
    return texts


def _controls(data: bytes) -> list[int]:
    """Returns the control characters that occur."""
    numbers = np.frombuffer(data, np.uint8)
    is_control = np.empty(_BLOCK, np.bool_)
    count = 0
    for at in range(0, len(numbers), _BLOCK):
        block = numbers[at : at + _BLOCK]
        count += int(np.count_nonzero(np.less(block, 0x20, out=is_control[: len(block)])))
    if count == data.count(b"\n"):  # nearly always
        return [NEWLINE] if count else []
    return [code for code in range(0x20) if bytes([code]) in data]


def _one_by_one(part: Any, changed: Sequence[str], stats: Sequence[str]) -> Iterator[bytes]:
    """Replaces fields line by line."""
    columns = {name: part.column(name).to_pylist() for name in changed}
    numbers = {name: part.column(STATS_PREFIX + name).to_pylist() for name in stats}
    for at, line in enumerate(part.column(LINE).to_pylist()):
        fields = {name: values[at] for name, values in columns.items()}
        found = {name: values[at] for name, values in numbers.items()}
        yield with_fields(line, fields, found)


_ROWS_AT_ONCE = 4096
_encoder = msgspec.json.Encoder(enc_hook=str)


def json_of_table(batch: Any, stats: Sequence[str]) -> Iterator[bytes]:
    """Yields the lines of all rows, in blocks."""
    batch = with_stats_nested(batch, stats)
    readable = [_readable(array) for array in batch.columns]
    batch = pa.RecordBatch.from_arrays(readable, names=batch.schema.names)
    for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
        yield _encoder.encode_lines(_whole_rows(batch.slice(start, _ROWS_AT_ONCE)))


def _whole_rows(batch: Any) -> list[dict[str, Any]]:
    """Adds fields that are not columns, before the statistics of filters."""
    rows: list[dict[str, Any]] = batch.to_pylist()
    if ADDED not in batch.schema.names:
        return rows
    for row, added in zip(rows, added_to(batch), strict=True):
        del row[ADDED]
        row.update(added)
        if STATS_FIELD in row:
            row[STATS_FIELD] = row.pop(STATS_FIELD)
    return rows


def with_stats_nested(batch: Any, stats: Sequence[str]) -> Any:
    """Drops internal columns and nests the kept statistics in one field."""
    names = [name for name in batch.schema.names if name != LINE and not name.startswith(STATS_PREFIX)]
    arrays = [batch.column(name) for name in names]
    if stats:
        found = [batch.column(STATS_PREFIX + name) for name in stats]
        names.append(STATS_FIELD)
        arrays.append(pa.StructArray.from_arrays(found, names=list(stats)))
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _readable(array: Any) -> Any:
    """Formats nanosecond timestamps, for which Python has no value, as Arrow does."""
    is_fine = pa.types.is_timestamp(array.type) and array.type.unit == "ns"
    return array.cast(pa.large_string()) if is_fine or pa.types.is_time64(array.type) else array
