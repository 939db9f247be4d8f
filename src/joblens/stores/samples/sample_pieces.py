"""Samples of one job as they were handed over, in one piece that is quickly made: a byte that tells it from a
block, then a Zstandard frame of MessagePack: how many columns a sample has, then the samples, each an array
of its columns in the order of SAMPLE_COLUMNS and its tables in the order of SAMPLE_TABLES.

A block takes a quarter of the room and ten times as long to write."""

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import astuple

from joblens.model.errors import StoreCorrupt
from joblens.model.jobs.sample import SAMPLE_COLUMNS, SAMPLE_TABLES, Sample
from joblens.stores.samples.blocks import decode_block

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PIECE = 16  # the first byte; those of blocks are below
_MARK = bytes([PIECE])
_LEVEL = 1
_WIDTH = len(SAMPLE_COLUMNS)
_MAX_PAYLOAD = 1 << 28  # a damaged length must not make us ask for all memory
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[int, list[list[Any]]])
_options: dict[int, int] = {
    zstd.CompressionParameter.compression_level: _LEVEL,
    zstd.CompressionParameter.checksum_flag: 1,
}
_compressor = zstd.ZstdCompressor(options=_options)  # making one costs more than using it


def encode_piece(samples: Iterable[Sample]) -> bytes:
    """A number that does not fit in 64 bits is kept as None: no true kernel counter is that large."""
    rows: Sequence[Sequence[Any]] = [astuple(sample) for sample in samples]
    try:
        return _packed(_WIDTH, rows)
    except OverflowError:
        return _packed(_WIDTH, [[_fitting(value) for value in row] for row in rows])


def is_piece(data: bytes) -> bool:
    """Else it is a block."""
    return data[:1] == _MARK


def decode_samples(data: bytes) -> list[Sample]:
    """Of a piece or a block. Raises StoreCorrupt when it is not what was written."""
    if not is_piece(data):
        return decode_block(data)
    width, rows = _unpacked(data)
    try:
        return [_sample(width, row) for row in rows]
    except (msgspec.MsgspecError, ValueError, TypeError) as error:
        raise StoreCorrupt(f"a piece of {len(rows)} samples cannot be read ({error})") from error


def joined_pieces(pieces: Sequence[bytes]) -> bytes | None:
    """Consecutive ones as one, much faster than by way of samples; None: not all of them are pieces of one
    width."""
    if not all(map(is_piece, pieces)):
        return None
    parts = [_unpacked(data) for data in pieces]
    if len({width for width, _ in parts}) != 1:
        return None
    return _packed(parts[0][0], [row for _, rows in parts for row in rows])


def _packed(width: int, rows: Sequence[Sequence[Any]]) -> bytes:
    return _MARK + _compressor.compress(_encoder.encode((width, rows)), zstd.ZstdCompressor.FLUSH_FRAME)


def _unpacked(data: bytes) -> tuple[int, list[list[Any]]]:
    decompressor = zstd.ZstdDecompressor()
    try:
        payload = decompressor.decompress(data[1:], _MAX_PAYLOAD)
        if not decompressor.eof:  # its checksum comes last
            raise EOFError("it was cut off")
        return _decoder.decode(payload)
    except (zstd.ZstdError, EOFError, msgspec.MsgspecError) as error:
        raise StoreCorrupt(f"a piece of samples of {len(data)} bytes cannot be read ({error})") from error


def _sample(width: int, row: list[Any]) -> Sample:
    # A column or a table that a newer joblens has beside these has no name here and is left out.
    columns = zip(SAMPLE_COLUMNS, row[:width], strict=False)
    tables = zip(SAMPLE_TABLES, row[width:], strict=False)
    fields = {name: value for name, value in (*columns, *tables) if value is not None}
    return msgspec.convert(fields, Sample)


def _fitting(value: Any) -> Any:
    if isinstance(value, int):
        return value if abs(value) < 1 << 63 else None
    if isinstance(value, dict):
        return {name: entry for name, entry in value.items() if all(map(_fits, astuple(entry)))}
    return value


def _fits(value: int | None) -> bool:
    return value is None or abs(value) < 1 << 63
