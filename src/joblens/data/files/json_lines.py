"""JSON lines reader: requested fields become columns, lines stay unchanged; line numbers for errors."""

import bisect
import itertools
import json
import os
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from joblens.data.base.manifests import too_short
from joblens.data.base.op_usage import note_mapped, note_memory_of_files
from joblens.data.files.rejects import Reject
from joblens.data.rows.batch import LINE
from joblens.data.rows.partition import Texts
from joblens.model.recipes.recipe import Slice

_COUNTED_BYTES = 256 << 20  # lines beyond this position are not counted
_AT_ONCE = 1 << 18
_KEPT_FILES = 16

_State = tuple[str, int, int, int]
_Counts = tuple[list[int], list[int]]  # sorted positions; number of line endings before each
_known: dict[_State, _Counts] = {}


def lines_before(path: str, position: int) -> int | None:
    """Counts the lines before a position; None: too much to read.

    A process counts each byte once, however many slices ask: it continues from the last known position.
    """
    if position > _COUNTED_BYTES:
        return None
    positions, lines = _counts_of(path)
    nearest = bisect.bisect_right(positions, position) - 1
    counted = lines[nearest] + _count(path, positions[nearest], position)
    note_lines(path, position, counted)
    return counted


def note_lines(path: str, position: int, count: int) -> None:
    """Records a count made elsewhere; `position` is behind a line end, or the end of the file."""
    positions, lines = _counts_of(path)
    at = bisect.bisect_left(positions, position)
    if at == len(positions) or positions[at] != position:
        positions.insert(at, position)
        lines.insert(at, count)


def _counts_of(path: str) -> _Counts:
    """Returns the counts for the current content of the file."""
    found = os.stat(path)
    state = (path, found.st_ino, found.st_size, found.st_mtime_ns)
    if state not in _known:
        while len(_known) >= _KEPT_FILES:
            del _known[next(iter(_known))]
        _known[state] = ([0], [0])
    return _known[state]


def _count(path: str, start: int, end: int) -> int:
    """Counts line endings through one small buffer: a mapped file would count as memory of the process."""
    buffer = bytearray(_AT_ONCE)
    view, count = memoryview(buffer), 0
    with open(path, "rb", buffering=0) as file:
        file.seek(start)
        while start < end:
            size = file.readinto(view[: min(_AT_ONCE, end - start)])
            if not size:
                break
            count += buffer.count(b"\n", 0, size)
            start += size
    return count


NEWLINE = 0x0A
_RETURN = 0x0D
_OPENING, _CLOSING = 0x7B, 0x7D  # of an object
_BOM = b"\xef\xbb\xbf"
_SEARCH_BYTES = 1 << 18  # the search for line endings stays in the CPU cache
_DECODED_AT_ONCE = 1 << 20
_Anything = bool | int | float | str | list[Any] | dict[str, Any]  # except null


def read_lines(
    piece: Slice, columns: Sequence[str], reject: Callable[[Reject], None], needed: Sequence[str] = ()
) -> Any:
    """Returns a RecordBatch of `columns` and `__line__`. Copies lines only if one is rejected."""
    data, skipped = _mapped(piece)
    ends = line_ends(data)
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]]) if len(ends) else ends
    position = _Origins(piece, skipped, starts)
    decoder = _Decoder(columns, needed)
    collected = [Texts(pa.large_string(), len(ends), data.size) for _ in columns]
    rejected: list[int] = []
    for first, end in _spans(ends):
        texts = decoder.whole(data, starts[first:end], ends[first:end])
        if texts is None:
            texts = _one_by_one(decoder, data, (starts, ends), (first, end), (position, reject, rejected))
        for column, values in zip(collected, texts, strict=True):
            column.add(values)
    lines = binary_over(data, np.concatenate([starts[:1], ends]))
    if rejected:
        stays = np.ones(len(lines), dtype=bool)
        stays[rejected] = False
        lines = lines.filter(pa.array(stays))
        note_memory_of_files()  # the lines are copies now, and the file is unmapped
    arrays = [column.array() for column in collected]
    return pa.RecordBatch.from_arrays([*arrays, lines], names=[*columns, LINE])


def line_ends(data: Any) -> Any:
    """Returns the offsets behind each newline of a buffer."""
    numbers = np.frombuffer(data, np.uint8)
    found = [
        np.flatnonzero(numbers[at : at + _SEARCH_BYTES] == NEWLINE) + (at + 1)
        for at in range(0, len(numbers), _SEARCH_BYTES)
    ]
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def binary_over(data: Any, offsets: Any) -> Any:
    """Returns a LargeBinaryArray of the values between the offsets, without copying."""
    offsets = np.ascontiguousarray(offsets, np.int64)
    count = max(0, len(offsets) - 1)
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def begin_and_end_objects(numbers: Any, starts: Any, ends: Any) -> bool:
    """Returns whether each line starts with { and ends with }: then as many objects as lines means one per
    line."""
    if not (numbers[starts] == _OPENING).all():
        return False
    last = numbers[np.maximum(ends - 2, 0)]
    if (last == _CLOSING).all():
        return True
    behind_return = numbers[np.maximum(ends - 3, 0)]
    return bool((np.where(last == _RETURN, behind_return, last) == _CLOSING).all())


class _Origins:
    """Positions of lines in the original file."""

    def __init__(self, piece: Slice, skipped: int, starts: Any) -> None:
        self._piece, self._skipped, self._starts = piece, skipped, starts
        self._lines_before: int | None = None
        self._is_counted = False

    def of(self, line: int, reason: str = "", row: Any = None) -> Reject:
        piece = self._piece
        byte = piece.start + self._skipped + int(self._starts[line])
        before = self._count_before()
        position = None if before is None else piece.origin_row + before + line + 1
        if piece.origin:
            return Reject(source=piece.origin, position=position, is_line=True, reason=reason, row=row)
        return Reject(source=piece.path, position=position, is_line=True, byte=byte, reason=reason, row=row)

    def _count_before(self) -> int | None:
        if not self._is_counted:
            self._is_counted = True
            self._lines_before = lines_before(self._piece.path, self._piece.start)
            if self._lines_before is not None:
                note_lines(self._piece.path, self._piece.end, self._lines_before + len(self._starts))
        return self._lines_before


def origins_of_rows(
    piece: Slice, columns: Sequence[str], needed: Sequence[str] = ()
) -> Callable[[Sequence[int]], list[Reject]]:
    """Returns a function from row numbers, among the readable rows of the slice, to positions."""
    bad: list[int] = []
    data, skipped = _mapped(piece)
    ends = line_ends(data)
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]]) if len(ends) else ends
    position = _Origins(piece, skipped, starts)
    decoder = _Decoder(columns, needed)
    for first, end in _spans(ends):
        if decoder.whole(data, starts[first:end], ends[first:end]) is None:
            _one_by_one(decoder, data, (starts, ends), (first, end), (position, lambda _: None, bad))
    good = np.delete(np.arange(len(ends)), bad)
    return lambda rows: [position.of(int(good[row])) for row in rows]


def _mapped(piece: Slice) -> tuple[Any, int]:
    """Maps a slice;
    adds a newline to the last line. Returns the bytes and the number of bytes skipped before them.
    """
    with pa.memory_map(piece.path) as file:
        if file.size() < piece.end:
            raise too_short(piece)
        file.seek(piece.start)
        data = file.read_buffer(piece.end - piece.start)
    note_mapped(data.size)
    skipped = 0
    if piece.start == 0 and data[: len(_BOM)].to_pybytes() == _BOM:
        skipped = len(_BOM)
        data = data.slice(skipped)
    if data.size and data[data.size - 1 : data.size].to_pybytes() != b"\n":
        data = pa.py_buffer(data.to_pybytes() + b"\n")
    return data, skipped


def _spans(ends: Any) -> list[tuple[int, int]]:
    """Yields ranges of lines to decode at once."""
    if not len(ends):
        return []
    cuts = np.searchsorted(ends, np.arange(_DECODED_AT_ONCE, int(ends[-1]), _DECODED_AT_ONCE))
    edges = np.unique(np.concatenate([[0], cuts, [len(ends)]])).tolist()
    return list(itertools.pairwise(edges))


def _one_by_one(
    decoder: "_Decoder",
    data: Any,
    all_lines: tuple[Any, Any],
    span: tuple[int, int],
    leaving_out: tuple[_Origins, Callable[[Reject], None], list[int]],
) -> list[Any]:
    starts, ends = all_lines
    position, reject, rejected = leaving_out
    rows: list[tuple[str, ...]] = []
    view = memoryview(data)
    for number in range(*span):
        line = bytes(view[starts[number] : ends[number]])
        values = decoder.single(line)
        if isinstance(values, tuple):
            rows.append(values)
            continue
        rejected.append(number)
        if values:
            reject(position.of(number, values, line))
    return [pa.array([row[at] for row in rows], pa.large_string()) for at in range(decoder.width)]


class _Decoder:
    """Extracts the requested fields from lines."""

    def __init__(self, columns: Sequence[str], needed: Sequence[str]) -> None:
        self._columns = tuple(columns)
        self._needed = tuple(needed)
        self.width = len(self._columns)
        names = [f"field_{at}" for at in range(self.width)]
        fields = [
            (own, str, msgspec.field(name=name)) for own, name in zip(names, self._columns, strict=True)
        ]
        others = [
            (f"needed_{at}", _Anything, msgspec.field(name=name)) for at, name in enumerate(self._needed)
        ]
        row_type = msgspec.defstruct("Wanted", [*fields, *others], gc=False)
        self._names = names
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(row_type)

    def whole(self, data: Any, starts: Any, ends: Any) -> list[Any] | None:
        """Decodes many lines at once; None: at least one needs `single`."""
        if not begin_and_end_objects(np.frombuffer(data, np.uint8), starts, ends):
            return None
        text = data.slice(int(starts[0]), int(ends[-1] - starts[0]))
        try:
            binary_over(text, np.array([0, text.size])).cast(pa.large_string())
            rows = self._decoder.decode_lines(text)
        except (msgspec.DecodeError, pa.ArrowInvalid, RecursionError, UnicodeDecodeError):
            return None
        if len(rows) != len(starts):
            return None
        return [pa.array([getattr(row, own) for row in rows], pa.large_string()) for own in self._names]

    def single(self, line: bytes) -> tuple[str, ...] | str:
        """Returns the fields, or the reason for rejection; "" for a blank line."""
        if not line.strip():
            return ""
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            return f"not UTF-8: byte 0x{line[error.start]:02x} at {error.start}"
        try:
            row = self._decoder.decode(line)
        except (msgspec.DecodeError, RecursionError):
            return self._leniently(text)
        return tuple(getattr(row, own) for own in self._names)

    def _leniently(self, text: str) -> tuple[str, ...] | str:
        """Parses NaN and other extensions that Python writes; on failure returns the reason."""
        try:
            row = json.loads(text.rstrip("\r\n"))
        except RecursionError:
            return "nested too deeply"
        except json.JSONDecodeError as error:
            return f"not JSON: {_describe(error)}"
        except ValueError as error:
            return f"not JSON: {error}"
        return fields_or_reason(row, self._columns, self._needed)


def _describe(error: json.JSONDecodeError) -> str:
    """Describes the error; positions count characters of the line from 1."""
    position = error.pos + 1
    if error.msg.startswith("Unterminated string"):
        return f"unterminated string starting at character {position}"
    if error.pos >= len(error.doc.rstrip()):
        return f"unexpected end of line after character {len(error.doc.rstrip())}"
    what = error.msg.removesuffix(" at")
    return f"{what[:1].lower()}{what[1:]} at character {position}"


def fields_or_reason(row: Any, columns: Sequence[str], needed: Sequence[str]) -> tuple[str, ...] | str:
    if not isinstance(row, dict):
        return f"{_named(row)}, expected an object"
    for name in columns:
        if name not in row:
            return f"missing field '{name}'"
        if not isinstance(row[name], str):
            return f"field '{name}' is {_named(row[name])}, expected a string"
        try:
            row[name].encode()
        except UnicodeEncodeError:
            return f"field '{name}' has an unpaired surrogate"
    for name in needed:
        if name not in row:
            return f"missing field '{name}'"
        if row[name] is None:
            return f"field '{name}' is null"
    return tuple(row[name] for name in columns)


def _named(value: Any) -> str:
    if value is None:
        return "null"
    names = {
        bool: "a boolean",
        int: "a number",
        float: "a number",
        list: "a list",
        str: "a string",
        dict: "an object",
    }
    return names.get(type(value), type(value).__name__)
