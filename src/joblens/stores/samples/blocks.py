"""Blocks: samples of one job, compressed by column; docs/format.md describes every byte."""

import struct
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, compress
from operator import add, sub
from types import ModuleType
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple

from joblens.model.errors import StoreCorrupt
from joblens.model.jobs.sample import SAMPLE_COLUMNS, SAMPLE_TABLES, Sample, within_64_bits
from joblens.stores.samples import columns_flat

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


if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# The version byte: how the columns are laid out, and whether there are tables beside that of devices.
FLAT, PACKED, FLAT_WITH_TABLES, PACKED_WITH_TABLES = _VERSIONS = 1, 2, 3, 4
_PACKED_FROM = 16  # samples; below, packing costs more time than it saves bytes

_FRAME = struct.Struct("<BI")  # version, CRC-32 of all that follows
_BLOCKS_HEAD = struct.Struct("<IHHH")  # samples, columns, sample columns among them, devices
_HEAD_WITH_TABLES = struct.Struct("<IIHH")  # samples, columns, sample columns among them, tables
_MOST_COLUMNS = 0xFFFF  # that the first of the two can tell
MAX_PAYLOAD = 1 << 28  # a damaged length must not make us ask for all memory

_OMITTED, _FULL, _GAPPED, _PREDICTED = 0, 1, 2, 3  # kinds of columns

_TABLES_AT = len(SAMPLE_COLUMNS)  # in a sample the tables come last
_PLACE = {name: place for place, name in enumerate(SAMPLE_COLUMNS)}
# Columns that are nearly the sum of others: what is left after taking those off hardly changes.
_Predictions = dict[int, tuple[int, ...]]
_OFTEN_SUMS: _Predictions = {
    _PLACE["at_us"]: (_PLACE["elapsed_us"],),
    _PLACE["cpu_total_usec"]: (_PLACE["cpu_user_usec"], _PLACE["cpu_system_usec"]),
    _PLACE["memory_current_bytes"]: (_PLACE["memory_anon_bytes"], _PLACE["memory_file_bytes"]),
}
_NETWORK_SUMS: _Predictions = {  # most jobs have no network: in few samples there is nothing to gain
    _PLACE["network_rx_bytes"]: (_PLACE["network_tcp_rx_bytes"], _PLACE["network_udp_rx_bytes"]),
    _PLACE["network_tx_bytes"]: (_PLACE["network_tcp_tx_bytes"], _PLACE["network_udp_tx_bytes"]),
}
# All of a job waits whenever some of it does, when it is one process.
_OFTEN_EQUAL: _Predictions = {
    _PLACE[f"{resource}_full_usec"]: (_PLACE[f"{resource}_some_usec"],)
    for resource in ("cpu", "memory", "io")
}
_ALL_PREDICTIONS = _OFTEN_SUMS | _NETWORK_SUMS | _OFTEN_EQUAL

_compressors: dict[int, "zstd.ZstdCompressor"] = {}


def encode_block(samples: Sequence[Sample], level: int = 3) -> bytes:
    is_packed = len(samples) >= _PACKED_FROM
    try:
        version, payload = _layout_of(
            samples, _ALL_PREDICTIONS if is_packed else _OFTEN_SUMS, is_packed=is_packed
        )
    except OverflowError:  # predictions may overflow, too
        version, payload = _layout_of([within_64_bits(sample) for sample in samples], {}, is_packed=False)
    packed = _compressor(level).compress(payload, zstd.ZstdCompressor.FLUSH_FRAME)
    return _FRAME.pack(version, zlib.crc32(packed)) + packed


def decode_block(data: bytes) -> list[Sample]:
    """Raises StoreCorrupt when the block is not what was written."""
    if len(data) <= _FRAME.size:
        raise StoreCorrupt(f"a sample block of {len(data)} bytes is too short")
    version, checksum = _FRAME.unpack_from(data)
    if version not in _VERSIONS:
        raise StoreCorrupt(
            f"a sample block has version {version}, which this joblens does not know",
            hint="it is damaged, or a newer joblens wrote it: use that one to read it",
        )
    packed = data[_FRAME.size :]
    if zlib.crc32(packed) != checksum:
        raise StoreCorrupt(f"a sample block of {len(data)} bytes fails its checksum")
    try:
        return _samples_of(version, zstd.ZstdDecompressor().decompress(packed, MAX_PAYLOAD))
    except (zstd.ZstdError, EOFError, struct.error, LookupError, ValueError, TypeError) as error:
        raise StoreCorrupt(f"a sample block does not hold what its header says ({error})") from error


def runs_of_indexes(indexes: Sequence[int], most: int) -> Iterator[Sequence[int]]:
    """Indexes without a gap, cut where a block would grow too large."""
    start = 0
    for place in range(1, len(indexes) + 1):
        is_end = place == len(indexes) or indexes[place] != indexes[place - 1] + 1
        if is_end or place - start == most:
            yield indexes[start:place]
            start = place


def _layout_of(
    samples: Sequence[Sample], predicted_from: _Predictions, *, is_packed: bool
) -> tuple[int, bytes]:
    """Returns the version and the payload. Raises OverflowError."""
    columns: list[Column] = list(zip(*map(astuple, samples), strict=True))
    tables = table_columns(columns[_TABLES_AT:])  # type: ignore[arg-type]
    del columns[_TABLES_AT:]
    for table in tables:
        columns += table.columns
    # Blocks without newer tables stay readable for every joblens.
    is_old = len(columns) <= _MOST_COLUMNS and all(table.place == DEVICES for table in tables)
    flat, packed = (FLAT, PACKED) if is_old else (FLAT_WITH_TABLES, PACKED_WITH_TABLES)
    version = packed if is_packed else flat
    return version, _payload(version, tables, columns, predicted_from)


def _compressor(level: int) -> "zstd.ZstdCompressor":
    # Making one costs as much as compressing a small block with it.
    compressor = _compressors.get(level)
    if compressor is None:
        compressor = _compressors[level] = zstd.ZstdCompressor(level=level)
    return compressor


# -- writing


def _payload(
    version: int, tables: list[TableColumns], columns: list[Column], predicted_from: _Predictions
) -> bytes:
    count = len(columns[0]) if columns else 0
    kinds = bytearray([_OMITTED if None in column else _FULL for column in columns])
    gapped = [
        place
        for place, column in enumerate(columns)
        if kinds[place] == _OMITTED and column.count(None) < count
    ]
    gaps = [_gap_bits(columns[place]) for place in gapped]
    filled: list[Any] = list(columns)
    for place in gapped:
        kinds[place] = _GAPPED
        filled[place] = list(_filled(columns[place]))
    kept = list(compress(filled, kinds))
    _predict(predicted_from, kinds, columns, kept)
    head = _head(version, tables, count, kinds)
    return b"".join((head, *gaps, _layout(version).pack_columns(kept)))


def _head(version: int, tables: list[TableColumns], count: int, kinds: bytearray) -> bytes:
    if version in (FLAT, PACKED):
        devices = len(tables[0].names) if tables else 0
        names = tables[0].packed_names() if tables else b""
        return _BLOCKS_HEAD.pack(count, len(kinds), len(SAMPLE_COLUMNS), devices) + kinds + names
    head = _HEAD_WITH_TABLES.pack(count, len(kinds), len(SAMPLE_COLUMNS), len(tables)) + kinds
    return head + b"".join(table.packed_head() for table in tables)


def _layout(version: int) -> ModuleType:
    if version not in (PACKED, PACKED_WITH_TABLES):
        return columns_flat
    from joblens.stores.samples import columns_packed  # a short job has no large blocks

    return columns_packed


def _predict(
    predicted_from: _Predictions, kinds: bytearray, columns: list[Column], kept: list[list[int]]
) -> None:
    if not columns:
        return
    for place, others in predicted_from.items():
        if kinds[place] != _FULL:
            continue
        left: list[Any] = list(columns[place])
        for other in others:
            if kinds[other] != _FULL:
                break
            left = list(map(sub, left, columns[other]))
        else:
            _keep_what_is_left(place, left, kinds, columns, kept)


def _keep_what_is_left(
    place: int, left: list[Any], kinds: bytearray, columns: list[Column], kept: list[list[int]]
) -> None:
    if len(left) >= _PACKED_FROM and not _changes_less(left, columns[place]):
        return
    kept[place - kinds.count(_OMITTED, 0, place)] = left
    kinds[place] = _PREDICTED


def _changes_less(left: Column, column: Column) -> bool:
    """Fewer different steps are fewer bits. Too few samples tell nothing."""
    return len(set(map(sub, left[1:], left))) < len(set(map(sub, column[1:], column)))


def _gap_bits(column: Column) -> bytes:
    bits = 0
    for place, value in enumerate(column):
        if value is None:
            bits |= 1 << place
    return bits.to_bytes((len(column) + 7) // 8, "little")


def _filled(column: Column) -> Iterator[int]:
    """Gaps repeat the last known value, which costs nothing once differences are taken."""
    last = next(value for value in column if value is not None)
    for value in column:
        if value is not None:
            last = value
        yield last


# -- reading


def _samples_of(version: int, payload: bytes) -> list[Sample]:
    has_old_head = version in (FLAT, PACKED)
    head = _BLOCKS_HEAD if has_old_head else _HEAD_WITH_TABLES
    count, column_count, known, entry_count = head.unpack_from(payload)
    position = head.size + column_count
    kinds = payload[head.size : position]
    if has_old_head:
        tables, position = _only_devices(payload, position, column_count - known, entry_count)
    else:
        tables, position = _tables(payload, position, entry_count)
    gap_size = (count + 7) // 8
    gaps: list[int] = []
    for _ in range(kinds.count(_GAPPED)):
        gaps.append(int.from_bytes(payload[position : position + gap_size], "little"))
        position += gap_size
    if not count:
        return []
    kept = _layout(version).unpack_columns(payload[position:], column_count - kinds.count(_OMITTED), count)
    columns = list(_columns(kinds, gaps, kept, count))
    _undo_predictions(kinds[:known], columns)
    start = known
    for table in tables:
        table.columns = columns[start : start + table.column_count]
        start += table.column_count
    return _samples(columns[:known], tables, count)


def _only_devices(
    payload: bytes, position: int, column_count: int, name_count: int
) -> tuple[list[TableColumns], int]:
    names, position = read_names(payload, position, name_count)
    width = (column_count - 1) // name_count if name_count else 0
    return ([TableColumns(DEVICES, width, names)] if column_count else []), position


def _tables(payload: bytes, position: int, table_count: int) -> tuple[list[TableColumns], int]:
    tables: list[TableColumns] = []
    for _ in range(table_count):
        table, position = read_head(payload, position)
        tables.append(table)
    return tables, position


def _columns(kinds: bytes, gaps: list[int], kept: list[list[int]], count: int) -> Iterator[Column]:
    column, gap = iter(kept), iter(gaps)
    for kind in kinds:
        if kind == _OMITTED:
            yield (None,) * count
        elif kind == _GAPPED:
            bits = next(gap)
            yield [None if bits >> place & 1 else value for place, value in enumerate(next(column))]
        else:
            yield next(column)


def _undo_predictions(kinds: bytes, columns: list[Column]) -> None:
    for place, others in _ALL_PREDICTIONS.items():
        if place < len(kinds) and kinds[place] == _PREDICTED:  # an older block has fewer columns
            for other in others:
                columns[place] = list(map(add, columns[place], columns[other]))


def _samples(columns: list[Column], tables: list[TableColumns], count: int) -> list[Sample]:
    # A column of a newer joblens has no name here and is left out; its neighbours are kept.
    known: list[tuple[str, Sequence[object]]] = [
        (name, column)
        for name, column in zip(SAMPLE_COLUMNS, columns, strict=False)
        if column.count(None) < count
    ]
    known += [entries for table in tables if (entries := table.entries()) is not None]
    names = [name for name, _ in known]
    rows = zip(*(column for _, column in known), strict=True)
    return [Sample(**dict(zip(names, row, strict=True))) for row in rows]
