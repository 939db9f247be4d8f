"""Samples as MessagePack rows, and the function that reads every encoding of samples.

The first byte identifies the encoding: below 16 a block, 16 a piece, above a single row (docs/format.md).
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import astuple

from joblens.files.zstd import CHECKSUM, COMPRESSION_LEVEL, ZstdCompressor, ZstdDecompressor, ZstdError
from joblens.model.errors import StoreCorrupt
from joblens.model.jobs.sample import (
    SAMPLE_COLUMNS,
    SAMPLE_TABLES,
    DeviceIo,
    Sample,
    sample_from_row,
    within_64_bits,
)
from joblens.stores.samples.blocks import MAX_PAYLOAD, Column, decode_block, decode_columns

_PIECE = 16
_MARK = bytes([_PIECE])
_WIDTH = len(SAMPLE_COLUMNS)  # the tables follow
_NOT_READ = (None,) * (len(SAMPLE_TABLES) - 1)
_encoder = msgspec.msgpack.Encoder()
_row_decoder = msgspec.msgpack.Decoder(list[Any])
_piece_decoder = msgspec.msgpack.Decoder(tuple[int, list[list[Any]]])
_options: dict[int, int] = {
    COMPRESSION_LEVEL: 1,
    CHECKSUM: 1,
}
_compressor = ZstdCompressor(options=_options)  # creating one costs more than using it


def decode_samples(data: bytes) -> list[Sample]:
    """Decodes samples. Raises StoreCorrupt if they are damaged."""
    kind = data[0] if data else 0
    if kind < _PIECE:
        return decode_block(data)
    if kind == _PIECE:
        width, rows = _unpack_piece(data)
        try:
            return [sample_from_row(row, width) for row in rows]
        except (msgspec.MsgspecError, ValueError, TypeError) as error:
            raise StoreCorrupt(f"a piece of {len(rows)} samples cannot be read ({error})") from error
    return [_decode_row(data)]


def decode_values(data: bytes, names: Sequence[str]) -> list[Column]:
    """Some columns of all samples, in the order of `names`. Raises StoreCorrupt."""
    kind = data[0] if data else 0
    if kind < _PIECE:
        return decode_columns(data, names)
    if kind > _PIECE:
        (sample,) = decode_samples(data)
        return [[getattr(sample, name)] for name in names]
    width, rows = _unpack_piece(data)
    indexes = [SAMPLE_COLUMNS.index(name) for name in names]
    return [[row[index] if index < width else None for row in rows] for index in indexes]


# -- a single row, for the tail of a running job in SQLite: written once per sample


def encode_row(sample: Sample) -> bytes:
    """Encodes the tables, then the columns.

    With devices as the only table, the first item is their map or nil, as in older versions; else an array of
    tables, each entry an array of its numbers.
    """
    try:
        return _encoder.encode(_row(sample))
    except OverflowError:
        return _encoder.encode(_row(within_64_bits(sample)))


def _row(sample: Sample) -> tuple[Any, ...]:
    fields = astuple(sample)
    tables = fields[_WIDTH:]
    if tables[1:] == _NOT_READ:
        return (tables[0], *fields[:_WIDTH])
    return ([_entries_as_rows(table) for table in tables], *fields[:_WIDTH])


def _entries_as_rows(table: dict[str, Struct] | None) -> dict[str, tuple[Any, ...]] | None:
    return None if table is None else {name: astuple(entry) for name, entry in table.items()}


def _decode_row(data: bytes) -> Sample:
    try:
        tables, *columns = _row_decoder.decode(data)
        if isinstance(tables, list):
            # A newer joblens may have written more tables.
            known = zip(SAMPLE_TABLES.values(), tables, strict=False)
            entries = [_rows_as_entries(kind, table) for kind, table in known]
        else:
            entries = [msgspec.convert(tables, dict[str, DeviceIo] | None)]
        return sample_from_row([*columns, *entries], len(columns))
    except (msgspec.MsgspecError, ValueError, TypeError, AttributeError) as error:
        raise StoreCorrupt(f"a sample of {len(data)} bytes cannot be read ({error})") from error


def _rows_as_entries(kind: type[Struct], table: dict[str, list[Any]] | None) -> dict[str, Any] | None:
    if table is None:
        return None
    names = kind.__struct_fields__
    return {name: msgspec.convert(dict(zip(names, row, strict=False)), kind) for name, row in table.items()}


# -- a piece, for a batch of samples in PostgreSQL: one row of the table, joined cheaply


def encode_piece(samples: Iterable[Sample]) -> bytes:
    samples = list(samples)
    try:
        return pack_piece(_WIDTH, [astuple(sample) for sample in samples])
    except OverflowError:
        return pack_piece(_WIDTH, [astuple(within_64_bits(sample)) for sample in samples])


def is_piece(data: bytes) -> bool:
    return data[:1] == _MARK


def joined_pieces(pieces: Sequence[bytes]) -> bytes | None:
    """Returns consecutive pieces as one, without decoding samples. None: one is a block, or the numbers of
    columns differ."""
    if not all(map(is_piece, pieces)):
        return None
    parts = [_unpack_piece(data) for data in pieces]
    if len({width for width, _ in parts}) != 1:
        return None
    return pack_piece(parts[0][0], [row for _, rows in parts for row in rows])


def pack_piece(width: int, rows: Sequence[Sequence[Any]]) -> bytes:
    """Packs rows of `width` columns and the tables."""
    return _MARK + _compressor.compress(_encoder.encode((width, rows)), ZstdCompressor.FLUSH_FRAME)


def _unpack_piece(data: bytes) -> tuple[int, list[list[Any]]]:
    decompressor = ZstdDecompressor()
    try:
        payload = decompressor.decompress(data[1:], MAX_PAYLOAD)
        if not decompressor.eof:  # its checksum comes last
            raise EOFError("it was cut off")
        return _piece_decoder.decode(payload)
    except (ZstdError, EOFError, msgspec.MsgspecError) as error:
        raise StoreCorrupt(f"a piece of samples of {len(data)} bytes cannot be read ({error})") from error
