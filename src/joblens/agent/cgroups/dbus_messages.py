"""D-Bus messages: calls in little-endian order, replies in either; no length in them is trusted."""

import struct
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

CALL, REPLY, ERROR, SIGNAL = 1, 2, 3, 4
PATH, INTERFACE, MEMBER, ERROR_NAME, REPLY_SERIAL, DESTINATION, SIGNATURE = 1, 2, 3, 4, 5, 6, 8
HEAD_BYTES = 16
_NO_AUTO_START = 2
_NUMBERS = {"y": "B", "n": "h", "q": "H", "i": "i", "u": "I", "x": "q", "t": "Q", "d": "d", "b": "I"}


class BadMessage(Exception):
    """Bytes that are not a readable message."""


class Message(Struct, frozen=True):
    kind: int
    fields: dict[int, Any]
    order: str  # byte order for struct
    body: bytes


def message_bytes(head: bytes | bytearray) -> int:
    """Returns the size of the message that begins with these HEAD_BYTES."""
    order = _byte_order(head[0])
    body, _, fields = struct.unpack_from(f"{order}III", head, 4)
    return _aligned(HEAD_BYTES + int(fields), 8) + int(body)


def _aligned(size: int, boundary: int) -> int:
    return -(-size // boundary) * boundary


def _byte_order(first: int) -> str:
    if first == ord("l"):
        return "<"
    if first == ord("B"):
        return ">"
    raise BadMessage("not a D-Bus message")


class Writer:
    """Writes values in little-endian order, aligned."""

    def __init__(self) -> None:
        self._data = bytearray()

    def __bytes__(self) -> bytes:
        return bytes(self._data)

    def align(self, boundary: int) -> None:
        self._data += bytes(_aligned(len(self._data), boundary) - len(self._data))

    def number(self, code: str, value: int) -> None:
        packed = struct.pack(f"<{_NUMBERS[code]}", value)
        self.align(len(packed))
        self._data += packed

    def text(self, value: str) -> None:
        data = value.encode()
        self.number("u", len(data))
        self._data += data + b"\0"

    def signature(self, value: str) -> None:
        self._data += bytes([len(value)]) + value.encode() + b"\0"

    def pids(self, pids: Sequence[int]) -> None:
        self.number("u", 4 * len(pids))
        for pid in pids:
            self.number("u", pid)

    def array(self, boundary: int, elements: Iterable[bytes]) -> None:
        """Writes elements that are aligned to this boundary."""
        self.number("u", 0)
        position = len(self._data) - 4
        self.align(boundary)
        start = len(self._data)
        for element in elements:
            self.align(boundary)
            self._data += element
        struct.pack_into("<I", self._data, position, len(self._data) - start)


def named_variant(name: str, signature: str, value: Any) -> bytes:
    """Writes one (sv) with a basic type or au."""
    writer = Writer()
    writer.text(name)
    writer.signature(signature)
    if signature == "au":
        writer.pids(value)
    elif signature == "s":
        writer.text(value)
    else:
        writer.number(signature, value)
    return bytes(writer)


def encode_call(serial: int, fields: Sequence[tuple[int, str, str]], body: bytes) -> bytes:
    writer = Writer()
    for byte in (ord("l"), CALL, _NO_AUTO_START, 1):
        writer.number("y", byte)
    writer.number("u", len(body))
    writer.number("u", serial)
    writer.array(8, (_header_field(*field) for field in fields))
    writer.align(8)
    return bytes(writer) + body


def _header_field(code: int, signature: str, value: str) -> bytes:
    writer = Writer()
    writer.number("y", code)
    writer.signature(signature)
    if signature == "g":
        writer.signature(value)
    else:
        writer.text(value)
    return bytes(writer)


def values_of(message: Message, signature: str) -> list[Any]:
    """Returns the first values of the body: basic types, and variants of basic types and string arrays."""
    return _Reader(message).values(signature)


def decode(data: bytes) -> Message:
    order = _byte_order(data[0])
    body, _, fields_bytes = struct.unpack_from(f"{order}III", data, 4)
    end = HEAD_BYTES + int(fields_bytes)
    header = Message(data[1], {}, order, data[:end])
    reader = _Reader(header, HEAD_BYTES)
    while reader.position < end:
        reader.align(8)
        code = reader.values("y")[0]
        header.fields[code] = reader.values("v")[0]
    return Message(header.kind, header.fields, order, data[len(data) - int(body) :])


class _Reader:
    """Reads values of a message without trusting its lengths."""

    def __init__(self, message: Message, position: int = 0) -> None:
        self._data = message.body
        self._order = message.order
        self.position = position

    def align(self, boundary: int) -> None:
        self.position = _aligned(self.position, boundary)

    def values(self, signature: str) -> list[Any]:
        try:
            return [self._value(code) for code in signature]
        except (struct.error, IndexError, KeyError, UnicodeDecodeError, RecursionError):
            raise BadMessage("values are not those its signature names") from None

    def _value(self, code: str) -> Any:
        if code == "v":
            return self._value(self._text(self._value("y")))
        if code in ("s", "o"):
            return self._text(self._value("u"))
        if code == "g":
            return self._text(self._value("y"))
        if code == "as":
            return self._texts(self._value("u"))
        form = f"{self._order}{_NUMBERS[code]}"
        self.align(struct.calcsize(form))
        value = struct.unpack_from(form, self._data, self.position)[0]
        self.position += struct.calcsize(form)
        return bool(value) if code == "b" else value

    def _texts(self, size: int) -> list[str]:
        end, texts = self.position + size, []
        while self.position < end:
            texts.append(self._value("s"))
        return texts

    def _text(self, size: int) -> str:
        end = self.position + size
        if self._data[end] != 0:  # beyond the end of the message, or text without its terminator
            raise IndexError
        text = self._data[self.position : end].decode()
        self.position = end + 1
        return text
