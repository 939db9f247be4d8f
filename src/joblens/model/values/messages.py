"""Messages between processes on one machine: one JSON value per line, on a stream socket.

A reader ignores unknown fields, so a process may talk to one of the next version. Launchers,
which import nothing but built-in modules, use marshalled datagrams instead (`agent/launcher`)."""

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import msgspec

Message = TypeVar("Message")

_NEWLINE = b"\n"

_encode = msgspec.json.Encoder().encode


def message_line(message: msgspec.Struct) -> bytes:
    return _encode(message) + _NEWLINE


class MessageReader(Generic[Message]):
    """Decodes messages that arrive in pieces."""

    def __init__(self, kind: Any) -> None:
        self._decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(kind)
        self._unread: list[bytes] = []

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yields the complete messages. Raises msgspec.MsgspecError for anything else."""
        *lines, rest = data.split(_NEWLINE)
        if lines:
            lines[0] = b"".join((*self._unread, lines[0]))
            self._unread.clear()
        if rest:
            self._unread.append(rest)
        for line in lines:
            yield self._decoder.decode(line)
