"""JSON objects, one a line, from files whose writer may have been stopped in the middle of one."""

import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

_CHUNK = 1 << 20
_GZIP = 31  # zlib's word for a gzip header and checksum


class JsonLines:
    """Iterates over the objects; afterwards `torn` tells how many lines were no whole object."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks
        self.torn = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        rest = b""
        for chunk in self._chunks:
            *lines, rest = (rest + chunk).split(b"\n")
            yield from self._objects(lines)
        yield from self._objects([rest])

    def _objects(self, lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
        for line in lines:
            if not line.strip():
                continue
            try:
                found = msgspec.json.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                found = None
            if isinstance(found, dict):
                yield found
            else:
                self.torn += 1


def file_chunks(path: str) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk


def gzip_chunks(path: str) -> Iterator[bytes]:
    """All members; a member that is cut short gives what it has, one that is damaged ends the file."""
    unpacking = zlib.decompressobj(_GZIP)
    for chunk in file_chunks(path):
        rest = chunk
        while rest:
            try:
                yield unpacking.decompress(rest)
            except zlib.error:
                return
            rest = unpacking.unused_data
            if unpacking.eof:
                unpacking = zlib.decompressobj(_GZIP)
    # A cut-short member may hold back a few bytes.
    yield unpacking.flush()
