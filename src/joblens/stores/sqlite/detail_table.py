"""What is known of jobs beside their samples: one row a job, brought up to date in place."""

import functools
import sys
from collections.abc import Callable, Mapping

import apsw
import msgspec

from joblens.model.details import Details
from joblens.model.errors import StoreCorrupt
from joblens.stores.sqlite.sql import QUERIES

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_MAX_JSON = 1 << 26  # a damaged length must not make us ask for all memory
_encoder = msgspec.json.Encoder()
_compressor = zstd.ZstdCompressor(level=3)  # making one costs as much as using it


def write_details(connection: apsw.Connection, news: Mapping[int, Details]) -> None:
    """By number of the job. Called inside a transaction."""
    numbers = _encoder.encode(list(news)).decode()
    known: dict[int, bytes] = dict(connection.execute(QUERIES["details_of"], (numbers,)))
    rows: list[tuple[int, bytes]] = []
    grown: list[tuple[int, int]] = []
    for number, details in news.items():
        before = known.get(number, b"")
        data = _packed(_readable(before).updated(details))
        if data != before:
            rows.append((number, data))
            grown.append((len(data) - len(before), number))
    connection.executemany(QUERIES["put_details"], rows)
    connection.executemany(QUERIES["add_sample_bytes"], [each for each in grown if each[0]])


def read_details(connection: apsw.Connection, uuid: str, warn: Callable[[str], None]) -> Details:
    for (data,) in connection.execute(QUERIES["details_of_uuid"], (uuid,)).fetchall():
        try:
            return unpack_details(data)  # type: ignore[arg-type]
        except StoreCorrupt as error:
            warn(f"details of job {uuid} are lost: {error}")
    return Details()


def unpack_details(data: bytes) -> Details:
    try:
        return _decoder().decode(zstd.ZstdDecompressor().decompress(data, _MAX_JSON))
    except (zstd.ZstdError, EOFError, msgspec.MsgspecError) as error:
        raise StoreCorrupt(f"details of {len(data)} bytes cannot be read ({error})") from error


@functools.cache
def _decoder() -> "msgspec.json.Decoder[Details]":
    """Dear to make, and a job that writes its details once never needs it."""
    return msgspec.json.Decoder(Details)


def _packed(details: Details) -> bytes:
    return _compressor.compress(_encoder.encode(details), zstd.ZstdCompressor.FLUSH_FRAME)


def _readable(data: bytes) -> Details:
    """What is there already; damaged, it is replaced by what comes now."""
    try:
        return unpack_details(data) if data else Details()
    except StoreCorrupt:
        return Details()
