"""Blocks: samples of one job, compressed by column; docs/format.md describes every byte."""

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, compress
from operator import add, sub
from types import ModuleType
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import astuple

from joblens.files.zstd import ZstdCompressor, ZstdDecompressor, ZstdError
from joblens.model.errors import StoreCorrupt
from joblens.model.jobs.sample import SAMPLE_COLUMNS, SAMPLE_TABLES, Sample, within_64_bits
from joblens.stores.samples import columns_flat

T = TypeVar("T")
Column = Sequence[int | None]
Entries = Mapping[str, Struct] | None  # table of one sample; None: not read

DEVICES = 0  # the table that all versions of blocks have
_NAME = struct.Struct("<H")  # length of a name
_HEAD = struct.Struct("<BHI")  # index of the table, columns per entry, entries


class _Kind:
    """Layout of the entries of one table."""

    def __init__(self, entry: type[Struct]) -> None:
        self.entry: Any = entry
        self.names = entry.__struct_fields__
        # Where every number may be unknown, an extra column says whether the entry exists.
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
    """One table over all samples of a block: a column that says where it was read, then columns per entry."""

    index: int  # index in SAMPLE_TABLES, which is only appended to
    width: int  # columns per entry
    names: list[str]
    columns: list[Column] = []

    @property
    def column_count(self) -> int:
        return 1 + self.width * len(self.names)

    def packed_names(self) -> bytes:
        encoded = map(str.encode, self.names)
        return b"".join(chain.from_iterable((_NAME.pack(len(name)), name) for name in encoded))

    def packed_head(self) -> bytes:
        return _HEAD.pack(self.index, self.width, len(self.names)) + self.packed_names()

    def entries(self) -> tuple[str, list[Entries]] | None:
        """Yields (field of Sample, values per sample); None: written by a newer joblens."""
        if self.index >= len(_KINDS):
            return None
        kind = _KINDS[self.index]
        found: list[dict[str, Struct] | None] = [None if there is None else {} for there in self.columns[0]]
        for number, name in enumerate(self.names):
            start = 1 + number * self.width
            rows = zip(*self.columns[start : start + self.width], strict=True)
            for entries, row in zip(found, rows, strict=True):
                if entries is not None and row[0] is not None and (kind.may_be_unknown or None not in row):
                    entries[name] = kind.read(row)
        return _FIELDS[self.index], found  # type: ignore[return-value]


def table_columns(tables: Sequence[Sequence[Entries]]) -> list[TableColumns]:
    """Returns the columns of tables that were read at all. `tables` is in the order of SAMPLE_TABLES."""
    found: list[TableColumns] = []
    for index, table in enumerate(tables):
        if table.count(None) == len(table):
            continue
        kind = _KINDS[index]
        names = list(dict.fromkeys(chain.from_iterable(each for each in table if each)))
        columns: list[Column] = [[None if each is None else 1 for each in table]]
        for name in names:
            rows = kind.rows([each.get(name) if each else None for each in table])
            columns += zip(*rows, strict=True)
        found.append(TableColumns(index, kind.width, names, columns))
    return found


def read_names(payload: bytes, position: int, count: int) -> tuple[list[str], int]:
    """Returns the names and the position behind them."""
    names: list[str] = []
    for _ in range(count):
        (length,) = _NAME.unpack_from(payload, position)
        position += _NAME.size
        names.append(payload[position : position + length].decode())
        position += length
    return names, position


def read_head(payload: bytes, position: int) -> tuple[TableColumns, int]:
    """Reads the output of `packed_head`. Returns tables without columns and the position behind them."""
    index, width, count = _HEAD.unpack_from(payload, position)
    names, position = read_names(payload, position + _HEAD.size, count)
    return TableColumns(index, width, names), position


# Version byte: the layout of columns, and whether there are tables besides devices.
FLAT, PACKED, FLAT_WITH_TABLES, PACKED_WITH_TABLES = _VERSIONS = 1, 2, 3, 4
_PACKED_FROM = 16  # samples; below, packing costs more time than it saves space

_FRAME = struct.Struct("<BI")  # version, CRC-32 of the rest
_BLOCKS_HEAD = struct.Struct("<IHHH")  # samples, columns, sample columns among them, devices
_HEAD_WITH_TABLES = struct.Struct("<IIHH")  # samples, columns, sample columns among them, tables
_MOST_COLUMNS = 0xFFFF  # largest counts that the first layout can hold
MAX_PAYLOAD = 1 << 28  # a damaged length must not allocate all memory

_OMITTED, _FULL, _GAPPED, _PREDICTED = 0, 1, 2, 3  # column kinds

_TABLES_AT = len(SAMPLE_COLUMNS)  # tables are the last fields of a sample
_INDEX = {name: index for index, name in enumerate(SAMPLE_COLUMNS)}
# Columns that are nearly the sum of others; the difference compresses well.
_Predictions = dict[int, tuple[int, ...]]
_OFTEN_SUMS: _Predictions = {
    _INDEX["at_us"]: (_INDEX["elapsed_us"],),
    _INDEX["cpu_total_usec"]: (_INDEX["cpu_user_usec"], _INDEX["cpu_system_usec"]),
    _INDEX["memory_current_bytes"]: (_INDEX["memory_anon_bytes"], _INDEX["memory_file_bytes"]),
}
_NETWORK_SUMS: _Predictions = {  # most jobs have no network, and few samples have nothing to gain
    _INDEX["network_rx_bytes"]: (_INDEX["network_tcp_rx_bytes"], _INDEX["network_udp_rx_bytes"]),
    _INDEX["network_tx_bytes"]: (_INDEX["network_tcp_tx_bytes"], _INDEX["network_udp_tx_bytes"]),
}
# In a job of one process, all of it waits whenever some of it waits.
_OFTEN_EQUAL: _Predictions = {
    _INDEX[f"{resource}_full_usec"]: (_INDEX[f"{resource}_some_usec"],)
    for resource in ("cpu", "memory", "io")
}
_ALL_PREDICTIONS = _OFTEN_SUMS | _NETWORK_SUMS | _OFTEN_EQUAL

_compressors: dict[int, ZstdCompressor] = {}


def encode_block(samples: Sequence[Sample], level: int = 3) -> bytes:
    is_packed = len(samples) >= _PACKED_FROM
    try:
        version, payload = _layout_of(
            samples, _ALL_PREDICTIONS if is_packed else _OFTEN_SUMS, is_packed=is_packed
        )
    except OverflowError:  # predictions may overflow as well
        version, payload = _layout_of([within_64_bits(sample) for sample in samples], {}, is_packed=False)
    packed = _compressor(level).compress(payload, ZstdCompressor.FLUSH_FRAME)
    return _FRAME.pack(version, zlib.crc32(packed)) + packed


def decode_block(data: bytes) -> list[Sample]:
    """Decodes a block. Raises StoreCorrupt if it is damaged."""
    return _opened(data, _samples_of)


def decode_columns(data: bytes, names: Sequence[str]) -> list[Column]:
    """Some columns of all samples of a block; the others are not decoded. Raises StoreCorrupt."""
    return _opened(data, lambda version, payload: _named_columns(version, payload, names))


def _opened(data: bytes, read: Callable[[int, bytes], T]) -> T:
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
        return read(version, ZstdDecompressor().decompress(packed, MAX_PAYLOAD))
    except (ZstdError, EOFError, struct.error, LookupError, ValueError, TypeError) as error:
        raise StoreCorrupt(f"a sample block does not match its header ({error})") from error


def runs_of_indexes(indexes: Sequence[int], most: int) -> Iterator[Sequence[int]]:
    """Splits indexes into runs without gaps, of at most `most`."""
    start = 0
    for index in range(1, len(indexes) + 1):
        is_end = index == len(indexes) or indexes[index] != indexes[index - 1] + 1
        if is_end or index - start == most:
            yield indexes[start:index]
            start = index


def _layout_of(
    samples: Sequence[Sample], predicted_from: _Predictions, *, is_packed: bool
) -> tuple[int, bytes]:
    """Returns the version and the payload. Raises OverflowError."""
    columns: list[Column] = list(zip(*map(astuple, samples), strict=True))
    tables = table_columns(columns[_TABLES_AT:])  # type: ignore[arg-type]
    del columns[_TABLES_AT:]
    for table in tables:
        columns += table.columns
    # Blocks without newer tables stay readable for older versions.
    is_old = len(columns) <= _MOST_COLUMNS and all(table.index == DEVICES for table in tables)
    flat, packed = (FLAT, PACKED) if is_old else (FLAT_WITH_TABLES, PACKED_WITH_TABLES)
    version = packed if is_packed else flat
    return version, _payload(version, tables, columns, predicted_from)


def _compressor(level: int) -> ZstdCompressor:
    # Creating one costs as much as compressing a small block with it.
    compressor = _compressors.get(level)
    if compressor is None:
        compressor = _compressors[level] = ZstdCompressor(level=level)
    return compressor


# -- writing


def _payload(
    version: int, tables: list[TableColumns], columns: list[Column], predicted_from: _Predictions
) -> bytes:
    count = len(columns[0]) if columns else 0
    kinds = bytearray([_OMITTED if None in column else _FULL for column in columns])
    gapped = [
        index
        for index, column in enumerate(columns)
        if kinds[index] == _OMITTED and column.count(None) < count
    ]
    gaps = [_gap_bits(columns[index]) for index in gapped]
    filled: list[Any] = list(columns)
    for index in gapped:
        kinds[index] = _GAPPED
        filled[index] = list(_filled(columns[index]))
    encoded = list(compress(filled, kinds))
    _predict(predicted_from, kinds, columns, encoded)
    head = _head(version, tables, count, kinds)
    return b"".join((head, *gaps, _layout(version).pack_columns(encoded)))


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
    predicted_from: _Predictions, kinds: bytearray, columns: list[Column], encoded: list[list[int]]
) -> None:
    if not columns:
        return
    for index, others in predicted_from.items():
        if kinds[index] != _FULL:
            continue
        remainder: list[Any] = list(columns[index])
        for other in others:
            if kinds[other] != _FULL:
                break
            remainder = list(map(sub, remainder, columns[other]))
        else:
            _replace_by_remainder(index, remainder, kinds, columns, encoded)


def _replace_by_remainder(
    index: int, remainder: list[Any], kinds: bytearray, columns: list[Column], encoded: list[list[int]]
) -> None:
    if len(remainder) >= _PACKED_FROM and not _changes_less(remainder, columns[index]):
        return
    encoded[index - kinds.count(_OMITTED, 0, index)] = remainder
    kinds[index] = _PREDICTED


def _changes_less(remainder: Column, column: Column) -> bool:
    """Whether the remainder has fewer different steps than the column, which takes fewer bits."""
    return len(set(map(sub, remainder[1:], remainder))) < len(set(map(sub, column[1:], column)))


def _gap_bits(column: Column) -> bytes:
    bits = 0
    for index, value in enumerate(column):
        if value is None:
            bits |= 1 << index
    return bits.to_bytes((len(column) + 7) // 8, "little")


def _filled(column: Column) -> Iterator[int]:
    """Fills gaps with the last known value, which costs nothing after taking differences."""
    last = next(value for value in column if value is not None)
    for value in column:
        if value is not None:
            last = value
        yield last


# -- reading


def _content(version: int, payload: bytes) -> tuple[int, int, bytes, list[int], list[TableColumns], bytes]:
    """Returns the number of samples, that of sample columns, the kinds of all columns, the gaps of columns
    with gaps in order, the tables, and the bytes of the columns that are not omitted."""
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
    return count, known, kinds, gaps, tables, payload[position:]


def _samples_of(version: int, payload: bytes) -> list[Sample]:
    count, known, kinds, gaps, tables, packed = _content(version, payload)
    if not count:
        return []
    kept = _layout(version).unpack_columns(packed, len(kinds) - kinds.count(_OMITTED), count)
    columns = list(_columns(kinds, gaps, kept, count))
    _undo_predictions(kinds[:known], columns)
    start = known
    for table in tables:
        table.columns = columns[start : start + table.column_count]
        start += table.column_count
    return _samples(columns[:known], tables, count)


def _named_columns(version: int, payload: bytes, names: Sequence[str]) -> list[Column]:
    count, known, kinds, gaps, _, packed = _content(version, payload)
    if not count:
        return [[] for _ in names]
    indexes = [_INDEX[name] for name in names]
    needed = set(indexes)
    for index in indexes:
        if index < known and kinds[index] == _PREDICTED:
            needed.update(_ALL_PREDICTIONS[index])
    stored = {index: index - kinds.count(_OMITTED, 0, index) for index in needed if index < known}
    wanted = {stored[index] for index in stored if kinds[index] != _OMITTED}
    kept = _layout(version).unpack_columns(packed, len(kinds) - kinds.count(_OMITTED), count, wanted)
    columns: dict[int, Column] = {}
    for index in needed:
        if index >= known or kinds[index] == _OMITTED:  # an older block has fewer columns
            columns[index] = [None] * count
        elif kinds[index] == _GAPPED:
            bits = gaps[kinds.count(_GAPPED, 0, index)]
            values = kept[stored[index]]
            columns[index] = [None if bits >> at & 1 else value for at, value in enumerate(values)]
        else:
            columns[index] = kept[stored[index]]
    for index in indexes:
        if index < known and kinds[index] == _PREDICTED:
            for other in _ALL_PREDICTIONS[index]:
                columns[index] = list(map(add, columns[index], columns[other]))
    return [columns[index] for index in indexes]


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


def _columns(kinds: bytes, gaps: list[int], encoded: list[list[int]], count: int) -> Iterator[Column]:
    column, gap = iter(encoded), iter(gaps)
    for kind in kinds:
        if kind == _OMITTED:
            yield (None,) * count
        elif kind == _GAPPED:
            bits = next(gap)
            yield [None if bits >> index & 1 else value for index, value in enumerate(next(column))]
        else:
            yield next(column)


def _undo_predictions(kinds: bytes, columns: list[Column]) -> None:
    for index, others in _ALL_PREDICTIONS.items():
        if index < len(kinds) and kinds[index] == _PREDICTED:  # an older block has fewer columns
            for other in others:
                columns[index] = list(map(add, columns[index], columns[other]))


def _samples(columns: list[Column], tables: list[TableColumns], count: int) -> list[Sample]:
    # Skips columns of a newer joblens, which have no name here.
    known: list[tuple[str, Sequence[object]]] = [
        (name, column)
        for name, column in zip(SAMPLE_COLUMNS, columns, strict=False)
        if column.count(None) < count
    ]
    known += [entries for table in tables if (entries := table.entries()) is not None]
    names = [name for name, _ in known]
    rows = zip(*(column for _, column in known), strict=True)
    return [Sample(**dict(zip(names, row, strict=True))) for row in rows]
