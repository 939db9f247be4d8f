"""A fake systemd manager: a thread that serves D-Bus on a Unix socket with prepared answers."""

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

Answer = tuple[str, tuple[Any, ...]]  # signature, values; ("error", (name, text)) for an error
NUMBERS = {"y": "B", "i": "i", "u": "I", "t": "Q", "b": "I"}
REPLY, ERROR, SIGNAL = 2, 3, 4


class FakeSystemd:
    """`answers`: by the method's name. `calls`: what came, as (method, arguments). `before_reply`: bytes that
    are sent before each reply."""

    def __init__(self, path: Path, answers: dict[str, Callable[..., Answer]]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.answers = answers
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.connections = 0
        self.before_reply = b""
        self._is_bus = path.name != "private"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(8)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            with connection, contextlib.suppress(EOFError, OSError):
                self._talk(connection)

    def _talk(self, connection: socket.socket) -> None:
        greeting = connection.recv(4096)
        uid = str(os.geteuid()).encode().hex().encode()
        assert greeting == b"\0AUTH EXTERNAL " + uid + b"\r\nBEGIN\r\n", greeting
        connection.sendall(b"OK 1234deadbeef\r\n")
        has_name = not self._is_bus
        while True:
            serial, fields, arguments = read_call(connection)
            member = fields[3]
            self.calls.append((member, arguments))
            assert has_name or member == "Hello", "a message bus wants Hello first"
            if member == "Hello":
                has_name = True
                signature, values = "s", (":1.7",)
            else:
                signature, values = self.answers[member](*arguments)
            connection.sendall(self.before_reply + reply(serial, signature, values))


def read_call(connection: socket.socket) -> tuple[int, dict[int, Any], tuple[Any, ...]]:
    head = read_exactly(connection, 16)
    order, kind, _, version, body_bytes, serial, fields_bytes = struct.unpack("<BBBBIII", head)
    assert (chr(order), kind, version) == ("l", 1, 1)
    rest = read_exactly(connection, fields_bytes + -fields_bytes % 8)
    data = head + rest
    values, _ = unmarshal("a(yv)", data, 12)
    fields = dict(values[0])
    body = read_exactly(connection, body_bytes)
    arguments, end = unmarshal(fields.get(8, ""), body, 0)
    assert end == body_bytes
    return serial, fields, tuple(arguments)


def read_exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def reply(serial: int, signature: str, values: tuple[Any, ...]) -> bytes:
    if signature == "error":
        name, text = values
        return message(ERROR, [(5, "u", serial), (4, "s", name), (8, "g", "s")], marshal("s", [text]))
    fields = [(5, "u", serial)] + ([(8, "g", signature)] if signature else [])
    return message(REPLY, fields, marshal(signature, values))


def signal(member: str, signature: str, values: tuple[Any, ...]) -> bytes:
    fields = [(1, "o", "/org/freedesktop/systemd1"), (2, "s", "org.freedesktop.systemd1.Manager")]
    return message(SIGNAL, [*fields, (3, "s", member), (8, "g", signature)], marshal(signature, values))


def message(kind: int, fields: list[tuple[int, str, Any]], body: bytes, order: str = "l") -> bytes:
    header = b""
    for code, signature, value in fields:
        header += bytes(-len(header) % 8) + bytes([code, 1]) + signature.encode() + b"\0"
        header += marshal(signature, [value], len(header) % 8)
    head = struct.pack("<BBBBIII", ord(order), kind, 0, 1, len(body), 99, len(header))
    return head + header + bytes(-len(header) % 8) + body


def marshal(signature: str, values: Any, start: int = 0) -> bytes:
    """Basic types and variants of them (as pairs of signature and value)."""
    data = bytes(start)
    for code, value in zip(signature, values, strict=True):
        if code in "so":
            text = value.encode()
            data += bytes(-len(data) % 4) + struct.pack("<I", len(text)) + text + b"\0"
        elif code == "g":
            data += bytes([len(value)]) + value.encode() + b"\0"
        elif code == "v":
            data += bytes([len(value[0])]) + value[0].encode() + b"\0"
            data += marshal(value[0], [value[1]], len(data))
        else:
            size = struct.calcsize(NUMBERS[code])
            data += bytes(-len(data) % size) + struct.pack(f"<{NUMBERS[code]}", value)
    return data[start:]


def unmarshal(signature: str, data: bytes, at: int) -> tuple[list[Any], int]:
    values = []
    while signature:
        one, signature = split_first(signature)
        value, at = unmarshal_one(one, data, at)
        values.append(value)
    return values, at


def unmarshal_one(signature: str, data: bytes, at: int) -> tuple[Any, int]:
    code = signature[0]
    if code == "a":
        at += -at % 4
        size = struct.unpack_from("<I", data, at)[0]
        at += 4
        at += -at % (8 if signature[1] in "({txd" else 4 if signature[1] not in "ygv" else 1)
        end, found = at + size, []
        while at < end:
            value, at = unmarshal_one(signature[1:], data, at)
            found.append(value)
        assert at == end
        return found, at
    if code == "(":
        at += -at % 8
        values, at = unmarshal(signature[1:-1], data, at)
        return tuple(values), at
    if code == "v":
        inner, at = unmarshal_one("g", data, at)
        return unmarshal_one(inner, data, at)
    if code in "so":
        at += -at % 4
        size = struct.unpack_from("<I", data, at)[0]
        assert data[at + 4 + size] == 0
        return data[at + 4 : at + 4 + size].decode(), at + 5 + size
    if code == "g":
        size = data[at]
        assert data[at + 1 + size] == 0
        return data[at + 1 : at + 1 + size].decode(), at + 2 + size
    size = struct.calcsize(NUMBERS[code])
    at += -at % size
    return struct.unpack_from(f"<{NUMBERS[code]}", data, at)[0], at + size


def split_first(signature: str) -> tuple[str, str]:
    """The first complete type, and the rest."""
    if signature[0] == "a":
        one, rest = split_first(signature[1:])
        return "a" + one, rest
    if signature[0] != "(":
        return signature[0], signature[1:]
    depth = 0
    for place, character in enumerate(signature):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return signature[: place + 1], signature[place + 1 :]
    raise AssertionError(signature)
