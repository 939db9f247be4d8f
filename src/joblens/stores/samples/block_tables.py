"""The tables of samples (devices, GPUs, interfaces) as columns of a block, and back; docs/format.md."""

import struct
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple

from joblens.model.jobs.sample import SAMPLE_TABLES

Column = Sequence[int | None]
Entries = Mapping[str, Struct] | None  # one sample's table; None: it was not read

DEVICES = 0  # the table that blocks always had
_NAME = struct.Struct("<H")  # length of a name
_HEAD = struct.Struct("<BHI")  # place of the table, columns an entry, entries


class _Kind:
    """How the entries of one table are laid out."""

    def __init__(self, entry: type[Struct]) -> None:
        self.entry: Any = entry
        self.names = entry.__struct_fields__
        # Where every number may be unknown, one more column tells whether the entry is there at all.
        self.may_be_unknown = entry.__struct_defaults__ == (None,) * len(self.names)
        self.width = len(self.names) + self.may_be_unknown
        self.nothing = (None,) * self.width

    def rows(self, entries: list[Struct | None]) -> list[tuple[int | None, ...]]:
        if self.may_be_unknown:
            return [self.nothing if each is None else (1, *astuple(each)) for each in entries]
        return [self.nothing if each is None else astuple(each) for each in entries]

    def read(self, row: tuple[int | None, ...]) -> Struct:
        if self.may_be_unknown:
            known = zip(self.names, row[1:], strict=False)
            return self.entry(**{name: value for name, value in known if value is not None})  # type: ignore[no-any-return]
        return self.entry(*row[: self.width])  # type: ignore[no-any-return]


_FIELDS = tuple(SAMPLE_TABLES)
_KINDS = tuple(_Kind(entry) for entry in SAMPLE_TABLES.values())


class TableColumns(Struct):
    """One table of all samples of a block: a column that tells where it was read, then each entry's own."""

    place: int  # in SAMPLE_TABLES, which only grows at its end
    width: int  # columns an entry
    names: list[str]
    columns: list[Column] = []

    @property
    def column_count(self) -> int:
        return 1 + self.width * len(self.names)

    def packed_names(self) -> bytes:
        encoded = map(str.encode, self.names)
        return b"".join(chain.from_iterable((_NAME.pack(len(name)), name) for name in encoded))

    def packed_head(self) -> bytes:
        return _HEAD.pack(self.place, self.width, len(self.names)) + self.packed_names()

    def entries(self) -> tuple[str, list[Entries]] | None:
        """(field of Sample, its value for each sample); None: a newer joblens knows what that is."""
        if self.place >= len(_KINDS):
            return None
        kind = _KINDS[self.place]
        found: list[dict[str, Struct] | None] = [None if there is None else {} for there in self.columns[0]]
        for number, name in enumerate(self.names):
            start = 1 + number * self.width
            rows = zip(*self.columns[start : start + self.width], strict=True)
            for entries, row in zip(found, rows, strict=True):
                if entries is not None and row[0] is not None and (kind.may_be_unknown or None not in row):
                    entries[name] = kind.read(row)
        return _FIELDS[self.place], found  # type: ignore[return-value]


def table_columns(tables: Sequence[Sequence[Entries]]) -> list[TableColumns]:
    """Of those that were read at all. `tables` is in the order of SAMPLE_TABLES."""
    found: list[TableColumns] = []
    for place, table in enumerate(tables):
        if table.count(None) == len(table):
            continue
        kind = _KINDS[place]
        names = list(dict.fromkeys(chain.from_iterable(each for each in table if each)))
        columns: list[Column] = [[None if each is None else 1 for each in table]]
        for name in names:
            rows = kind.rows([each.get(name) if each else None for each in table])
            columns += zip(*rows, strict=True)
        found.append(TableColumns(place, kind.width, names, columns))
    return found


def read_names(payload: bytes, position: int, count: int) -> tuple[list[str], int]:
    """-> the names and where they end."""
    names: list[str] = []
    for _ in range(count):
        (length,) = _NAME.unpack_from(payload, position)
        position += _NAME.size
        names.append(payload[position : position + length].decode())
        position += length
    return names, position


def read_head(payload: bytes, position: int) -> tuple[TableColumns, int]:
    """What `packed_head` wrote, still without columns, and where it ends."""
    place, width, count = _HEAD.unpack_from(payload, position)
    names, position = read_names(payload, position + _HEAD.size, count)
    return TableColumns(place, width, names), position
