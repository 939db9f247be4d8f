"""Fields put into one line of JSON: only the bytes of their values are replaced."""

import functools
import json
from typing import Any

import msgspec
import pyarrow as pa

STATS_FIELD = "__dj__stats__"  # where other tools look for what filters computed
_SPACE = " \t\r\n"
_encode = msgspec.json.Encoder().encode
_scan = json.JSONDecoder().raw_decode
_MISSING = (-1, -1)
_Place = tuple[int, int]  # where a value begins, and the first byte behind it


def with_fields(line: bytes, fields: dict[str, Any], found: dict[str, Any]) -> bytes:
    """The line with these values, and with what filters found. What is as it was already stays as it is
    written; what is new comes last."""
    names = (*fields, STATS_FIELD) if found else tuple(fields)
    places = _places(line, names)
    edits: list[tuple[int, int, bytes]] = []
    added: list[bytes] = []
    if found:
        earlier = _value(line, places[STATS_FIELD])
        fields = {**fields, STATS_FIELD: (earlier if isinstance(earlier, dict) else {}) | found}
    for name, value in fields.items():
        place = places[name]
        if place == _MISSING:
            added.append(_encode(name) + b":" + _written(value))
        elif not _is_same(_value(line, place), value):
            edits.append((*place, _written(value)))
    for start, end, value in sorted(edits, reverse=True):
        line = line[:start] + value + line[end:]
    return _with_more(line, added) if added else line


def _with_more(line: bytes, added: list[bytes]) -> bytes:
    closing = line.rindex(b"}")
    before = line[:closing].rstrip()
    separator = b"" if before.endswith(b"{") else b","
    return before + separator + b",".join(added) + line[closing:]


def _places(line: bytes, names: tuple[str, ...]) -> dict[str, _Place]:
    """Of the last value of each name, as all readers take it."""
    try:
        row = _decoder(names).decode(line)
    except (msgspec.DecodeError, RecursionError):
        return _scanned(line, names)
    data = pa.py_buffer(line)
    found: dict[str, _Place] = {}
    for name, value in zip(names, msgspec.structs.astuple(row), strict=True):
        if not isinstance(value, msgspec.Raw):
            found[name] = _MISSING
            continue
        # It is a view of the line.
        start = pa.py_buffer(value).address - data.address
        found[name] = (start, start + len(value))
    return found


@functools.lru_cache(64)
def _decoder(names: tuple[str, ...]) -> Any:
    fields = [
        (f"field_{at}", msgspec.Raw, msgspec.field(name=name, default=None)) for at, name in enumerate(names)
    ]
    return msgspec.json.Decoder(msgspec.defstruct("Wanted", fields, gc=False))


def _scanned(line: bytes, names: tuple[str, ...]) -> dict[str, _Place]:
    """The same for lines that only Python reads: with NaN, or half a surrogate pair in another field."""
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


def _value(line: bytes, place: _Place) -> Any:
    return None if place == _MISSING else json.loads(line[place[0] : place[1]])


def _written(value: Any) -> bytes:
    try:
        return _encode(value)
    except (UnicodeEncodeError, OverflowError):  # half a surrogate pair, more than 64 bits
        return json.dumps(value).encode()


def _is_same(one: Any, other: Any) -> bool:
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)
