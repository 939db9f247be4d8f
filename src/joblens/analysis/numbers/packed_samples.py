"""Samples that wait for the end of their job in little memory: a twentieth of what they take as objects."""

import zlib
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import astuple

from joblens.model.jobs.sample import SAMPLE_COLUMNS, SAMPLE_TABLES, Sample

_LEVEL = 1  # quick: neighbours are alike
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Any])
_FIELDS = Sample.__struct_fields__


class Row(Struct, frozen=True):
    """One sample as bytes, with what has to be known to throw it away."""

    number: int  # which of the job's samples it is
    has_gpus: bool
    data: bytes


class Chunk(Struct, frozen=True):
    """Samples that follow each other, compressed together."""

    numbers: "array[int]"
    lengths: "array[int]"
    with_gpus: bytes  # 1 where it has some
    data: bytes

    def rows(self) -> Iterator[Row]:
        data, position = zlib.decompress(self.data), 0
        for number, length, has_gpus in zip(self.numbers, self.lengths, self.with_gpus, strict=True):
            yield Row(number, bool(has_gpus), data[position : position + length])
            position += length


def packed_chunk(rows: Sequence[Row]) -> Chunk:
    return Chunk(
        array("Q", [row.number for row in rows]),
        array("I", [len(row.data) for row in rows]),
        bytes(row.has_gpus for row in rows),
        zlib.compress(b"".join(row.data for row in rows), _LEVEL),
    )


def packed_row(number: int, sample: Sample) -> Row:
    fields = astuple(sample)
    try:
        data = _encoder.encode(fields)
    except OverflowError:  # no true counter needs more than 64 bits
        columns = fields[: len(SAMPLE_COLUMNS)]
        data = _encoder.encode([None if abs(value or 0) >= 1 << 63 else value for value in columns])
    return Row(number, sample.gpus is not None, data)


def unpacked(row: Row) -> Sample:
    values = zip(_FIELDS, _decoder.decode(row.data), strict=False)
    known = {name: value for name, value in values if value is not None}
    for name, kind in SAMPLE_TABLES.items():
        if name in known:
            known[name] = msgspec.convert(known[name], dict[str, kind])  # type: ignore[valid-type]
    return Sample(**known)
