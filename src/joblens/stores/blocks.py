"""Samples of one job as a compressed columnar block; docs/format.md describes every byte."""

import struct
import sys
import zlib
from collections.abc import Iterator, Sequence
from itertools import chain
from operator import add, sub

from msgspec.structs import astuple

from joblens.model.errors import StoreCorrupt
from joblens.model.sample import DEVICE_COLUMNS, SAMPLE_COLUMNS, DeviceIo, Sample
from joblens.stores import columns_flat, columns_packed

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

FLAT, PACKED = 1, 2  # the version byte: how the columns are laid out
_PACKED_FROM = 16  # samples; below, packing costs more time than it saves bytes

_FRAME = struct.Struct("<BI")  # version, CRC-32 of all that follows
_HEAD = struct.Struct("<IHHH")  # samples, columns, sample columns among them, devices
_NAME = struct.Struct("<H")  # length of a device name
_MAX_PAYLOAD = 1 << 28  # a damaged length must not make us ask for all memory

_OMITTED, _FULL, _GAPPED, _PREDICTED = 0, 1, 2, 3  # kinds of columns

_DEVICES_AT = Sample.__struct_fields__.index("devices")
_NO_DEVICE = (None,) * len(DEVICE_COLUMNS)
_PLACE = {name: place for place, name in enumerate(SAMPLE_COLUMNS)}
# Columns that are nearly the sum of others: what is left after taking those off hardly changes.
_Predictions = dict[int, tuple[int, ...]]
_OFTEN_SUMS: _Predictions = {
    _PLACE["at_us"]: (_PLACE["elapsed_us"],),
    _PLACE["cpu_total_usec"]: (_PLACE["cpu_user_usec"], _PLACE["cpu_system_usec"]),
    _PLACE["memory_current_bytes"]: (_PLACE["memory_anon_bytes"], _PLACE["memory_file_bytes"]),
}
# All of a job waits whenever some of it does, when it is one process.
_OFTEN_EQUAL: _Predictions = {
    _PLACE[f"{resource}_full_usec"]: (_PLACE[f"{resource}_some_usec"],)
    for resource in ("cpu", "memory", "io")
}
_ALL_PREDICTIONS = _OFTEN_SUMS | _OFTEN_EQUAL

Column = Sequence[int | None]
Devices = dict[str, DeviceIo] | None

_compressors: dict[int, "zstd.ZstdCompressor"] = {}


def encode_block(samples: Sequence[Sample], level: int = 3) -> bytes:
    """A number that does not fit in 64 bits is kept as None: no true kernel counter is that large."""
    columns: list[Column] = list(zip(*map(astuple, samples), strict=True))
    devices: Sequence[Devices] = columns[_DEVICES_AT] if samples else ()  # type: ignore[assignment]
    del columns[_DEVICES_AT:]
    names, device_columns = _device_columns(devices)
    columns += device_columns
    version, payload = _smallest_layout(len(samples), names, columns)
    packed = _compressor(level).compress(payload, zstd.ZstdCompressor.FLUSH_FRAME)
    return _FRAME.pack(version, zlib.crc32(packed)) + packed


def decode_block(data: bytes) -> list[Sample]:
    """Raises StoreCorrupt when the block is not what was written."""
    if len(data) <= _FRAME.size:
        raise StoreCorrupt(f"a sample block of {len(data)} bytes is too short")
    version, checksum = _FRAME.unpack_from(data)
    if version not in (FLAT, PACKED):
        raise StoreCorrupt(
            f"a sample block has version {version}, which this joblens does not know",
            hint="it is damaged, or a newer joblens wrote it: use that one to read it",
        )
    packed = data[_FRAME.size :]
    if zlib.crc32(packed) != checksum:
        raise StoreCorrupt(f"a sample block of {len(data)} bytes fails its checksum")
    try:
        return _samples_of(version, zstd.ZstdDecompressor().decompress(packed, _MAX_PAYLOAD))
    except (zstd.ZstdError, EOFError, struct.error, LookupError, ValueError, TypeError) as error:
        raise StoreCorrupt(f"a sample block does not hold what its header says ({error})") from error


def _smallest_layout(count: int, names: list[str], columns: list[Column]) -> tuple[int, bytes]:
    try:
        if count >= _PACKED_FROM:
            return PACKED, _payload(PACKED, names, columns, _ALL_PREDICTIONS)
        return FLAT, _payload(FLAT, names, columns, _OFTEN_SUMS)
    except OverflowError:
        # Rare and absurd numbers: without predictions only what does not fit by itself is lost.
        fitting: list[Column] = [tuple(map(_fitting, column)) for column in columns]
        return FLAT, _payload(FLAT, names, fitting, {})


def _compressor(level: int) -> "zstd.ZstdCompressor":
    # Making one costs as much as compressing a small block with it.
    compressor = _compressors.get(level)
    if compressor is None:
        compressor = _compressors[level] = zstd.ZstdCompressor(level=level)
    return compressor


# -- writing


def _device_columns(devices: Sequence[Devices]) -> tuple[list[str], list[Column]]:
    """One column telling where `devices` is None, then six for each device that occurs."""
    if devices.count(None) == len(devices):
        return [], []
    names = list(dict.fromkeys(chain.from_iterable(each for each in devices if each)))
    columns: list[Column] = [[None if each is None else 1 for each in devices]]
    for name in names:
        readings = [each.get(name) if each else None for each in devices]
        rows = [_NO_DEVICE if reading is None else astuple(reading) for reading in readings]
        columns += zip(*rows, strict=True)
    return names, columns


def _payload(version: int, names: list[str], columns: list[Column], predicted_from: _Predictions) -> bytes:
    count = len(columns[0]) if columns else 0
    kinds = bytearray(len(columns))
    kept: list[list[int]] = []
    gaps: list[bytes] = []
    for place, column in enumerate(columns):
        if None not in column:
            kinds[place] = _FULL
            kept.append(column)  # type: ignore[arg-type]
        elif column.count(None) < count:
            kinds[place] = _GAPPED
            gaps.append(_gap_bits(column))
            kept.append(list(_filled(column)))
    _predict(predicted_from, kinds, columns, kept)
    head = _HEAD.pack(count, len(columns), len(SAMPLE_COLUMNS), len(names)) + kinds
    for name in map(str.encode, names):
        head += _NAME.pack(len(name)) + name
    layout = columns_packed if version == PACKED else columns_flat
    return b"".join((head, *gaps, layout.pack_columns(kept)))


def _predict(
    predicted_from: _Predictions, kinds: bytearray, columns: list[Column], kept: list[list[int]]
) -> None:
    if not columns:
        return
    for place, others in predicted_from.items():
        if kinds[place] != _FULL or any(kinds[other] != _FULL for other in others):
            continue
        left = list(columns[place])
        for other in others:
            left = list(map(sub, left, columns[other]))
        if len(left) >= _PACKED_FROM and not _changes_less(left, columns[place]):
            continue
        kept[place - kinds.count(_OMITTED, 0, place)] = left  # type: ignore[assignment]
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


def _fitting(value: int | None) -> int | None:
    return value if value is not None and -(1 << 63) <= value < 1 << 63 else None


# -- reading


def _samples_of(version: int, payload: bytes) -> list[Sample]:
    count, column_count, known, device_count = _HEAD.unpack_from(payload)
    position = _HEAD.size + column_count
    kinds = payload[_HEAD.size : position]
    names: list[str] = []
    for _ in range(device_count):
        (length,) = _NAME.unpack_from(payload, position)
        names.append(payload[position + _NAME.size : position + _NAME.size + length].decode())
        position += _NAME.size + length
    gap_size = (count + 7) // 8
    gaps: list[int] = []
    for _ in range(kinds.count(_GAPPED)):
        gaps.append(int.from_bytes(payload[position : position + gap_size], "little"))
        position += gap_size
    if not count:
        return []
    layout = columns_packed if version == PACKED else columns_flat
    kept = layout.unpack_columns(payload[position:], column_count - kinds.count(_OMITTED), count)
    columns = list(_columns(kinds, gaps, kept, count))
    _undo_predictions(kinds, columns)
    return _samples(columns[:known], _devices(columns[known:], names, count), count)


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
        if kinds[place] == _PREDICTED:
            for other in others:
                columns[place] = list(map(add, columns[place], columns[other]))


def _devices(columns: list[Column], names: list[str], count: int) -> list[Devices]:
    if not columns:
        return [None] * count
    found: list[Devices] = [None if there is None else {} for there in columns[0]]
    width = (len(columns) - 1) // len(names) if names else 0
    for place, name in enumerate(names):
        start = 1 + place * width
        for devices, row in zip(found, zip(*columns[start : start + width], strict=True), strict=True):
            if devices is not None and row[0] is not None:
                devices[name] = DeviceIo(*row[: len(DEVICE_COLUMNS)])
    return found


def _samples(columns: list[Column], devices: list[Devices], count: int) -> list[Sample]:
    # A column of a newer joblens has no name here and is left out; its neighbours are kept.
    known = [
        (name, column)
        for name, column in zip(SAMPLE_COLUMNS, columns, strict=False)
        if column.count(None) < count
    ]
    names = [name for name, _ in known]
    rows = zip(*(column for _, column in known), strict=True)
    return [
        Sample(**dict(zip(names, row, strict=True)), devices=each)
        for row, each in zip(rows, devices, strict=True)
    ]
