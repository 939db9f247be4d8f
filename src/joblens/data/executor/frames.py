"""Messages over a socket: their length, then msgpack."""

import socket
import struct
from collections.abc import Iterator
from typing import Any

import msgspec

_LENGTH = struct.Struct("<I")
_READ_BYTES = 1 << 16

_encode = msgspec.msgpack.Encoder().encode


def send(connection: socket.socket, message: msgspec.Struct) -> None:
    body = _encode(message)
    connection.sendall(_LENGTH.pack(len(body)) + body)


class Incoming:
    """Puts together what comes in pieces."""

    def __init__(self, connection: socket.socket, kind: Any) -> None:
        self._connection = connection
        self._decoder = msgspec.msgpack.Decoder(kind)
        self._waiting = bytearray()

    def receive(self) -> list[Any] | None:
        """Waits for the next piece: the messages that are whole with it. None: the other side is gone."""
        try:
            piece = self._connection.recv(_READ_BYTES)
        except ConnectionError:
            return None
        if not piece:
            return None
        self._waiting += piece
        return list(self._whole())

    def _whole(self) -> Iterator[Any]:
        begin, waiting = 0, self._waiting
        while len(waiting) - begin >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(waiting, begin)
            end = begin + _LENGTH.size + length
            if end > len(waiting):
                break
            yield self._decoder.decode(memoryview(waiting)[begin + _LENGTH.size : end])
            begin = end
        del waiting[:begin]
