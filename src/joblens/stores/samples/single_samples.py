"""One sample as a few hundred bytes of MessagePack, for samples that wait to be put into a block.

An array: the tables first, then the columns in the order of SAMPLE_COLUMNS, which only ever grows. With no
table but devices the first is their map or nil, as it was before there were others; else it is an array of
them in the order of SAMPLE_TABLES, each entry an array of its numbers."""

from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import astuple

from joblens.model.errors import StoreCorrupt
from joblens.model.jobs.sample import SAMPLE_COLUMNS, SAMPLE_TABLES, DeviceIo, Sample

_TABLES_AT = len(SAMPLE_COLUMNS)  # in a sample the tables come last, devices before the others
_NOT_READ = (None,) * (len(SAMPLE_TABLES) - 1)
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Any])


def encode_sample(sample: Sample) -> bytes:
    fields = astuple(sample)
    columns, tables = fields[:_TABLES_AT], fields[_TABLES_AT:]
    try:
        if tables[1:] == _NOT_READ:
            return _encoder.encode((tables[0], *columns))
        return _encoder.encode(([_entries_as_rows(table) for table in tables], *columns))
    except OverflowError:
        fitting = [value if _fits(value) else None for value in columns]
        return _encoder.encode(([_fitting_rows(_entries_as_rows(table)) for table in tables], *fitting))


def decode_sample(data: bytes) -> Sample:
    try:
        tables, *columns = _decoder.decode(data)
        named = zip(SAMPLE_COLUMNS, columns, strict=False)
        fields: dict[str, Any] = {name: value for name, value in named if value is not None}
        if isinstance(tables, list):
            # A table that a newer joblens has beside these is left out.
            for (name, kind), table in zip(SAMPLE_TABLES.items(), tables, strict=False):
                fields[name] = _rows_as_entries(kind, table)
        else:
            fields["devices"] = msgspec.convert(tables, dict[str, DeviceIo] | None)
        return msgspec.convert(fields, Sample)
    except (msgspec.MsgspecError, ValueError, TypeError, AttributeError) as error:
        raise StoreCorrupt(f"a sample of {len(data)} bytes cannot be read ({error})") from error


def _entries_as_rows(table: dict[str, Struct] | None) -> dict[str, tuple[Any, ...]] | None:
    return None if table is None else {name: astuple(entry) for name, entry in table.items()}


def _rows_as_entries(kind: type[Struct], table: dict[str, list[Any]] | None) -> dict[str, Any] | None:
    if table is None:
        return None
    names = kind.__struct_fields__
    return {name: msgspec.convert(dict(zip(names, row, strict=False)), kind) for name, row in table.items()}


def _fitting_rows(table: dict[str, tuple[Any, ...]] | None) -> dict[str, tuple[Any, ...]] | None:
    return table and {name: row for name, row in table.items() if all(map(_fits, row))}


def _fits(value: int | None) -> bool:
    """No true kernel counter needs more than 64 bits."""
    return value is None or abs(value) < 1 << 63
