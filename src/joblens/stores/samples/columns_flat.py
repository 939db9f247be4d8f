"""Columns for blocks of a few samples: quick above all.

The columns lie one behind the other in a single flat list, so difference, zigzag and byte shuffle
are each one pass in C over everything."""

import sys
from array import array
from functools import lru_cache
from itertools import accumulate, chain
from operator import sub

_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


def pack_columns(columns: list[list[int]]) -> bytes:
    """Raises OverflowError when a value does not fit in 64 bits."""
    flat = [0]
    flat += chain.from_iterable(columns)
    differences = list(map(sub, flat[1:], flat))
    try:
        numbers = array("q", differences)
    except OverflowError:
        if min(flat) < _INT64_MIN or max(flat) > _INT64_MAX:
            raise
        numbers = array("q", map(_wrapped, differences))
    data = _zigzag(numbers)
    return b"".join([data[place::8] for place in range(8)])


def unpack_columns(data: bytes, column_count: int, count: int) -> list[list[int]]:
    length = column_count * count
    if len(data) != 8 * length:
        raise ValueError(f"{len(data)} bytes of numbers instead of {8 * length}")
    joined = bytearray(len(data))
    for place in range(8):
        joined[place::8] = data[place * length : (place + 1) * length]
    flat = list(accumulate(_unzigzag(joined)))
    if flat and (min(flat) < _INT64_MIN or max(flat) > _INT64_MAX):
        flat = list(map(_wrapped, flat))
    return [flat[start : start + count] for start in range(0, length, count)]


def _wrapped(value: int) -> int:
    return (value - _INT64_MIN) % (1 << 64) + _INT64_MIN


# Zigzag turns small numbers of either sign into small numbers. Here it is done to all 64-bit lanes
# of one large integer at once.


def _zigzag(numbers: "array[int]") -> bytes:
    data = in_little_endian(numbers).tobytes()
    lanes, (ones, others) = int.from_bytes(data, "little"), _masks(len(numbers))
    negative = (lanes >> 63) & ones
    doubled = (lanes << 1) & others
    return (doubled ^ ((negative << 64) - negative)).to_bytes(len(data), "little")


def _unzigzag(data: bytes | bytearray) -> "array[int]":
    lanes = int.from_bytes(data, "little")
    odd = lanes & _masks(len(data) // 8)[0]
    halved = (lanes ^ odd) >> 1
    return in_little_endian(array("q", (halved ^ ((odd << 64) - odd)).to_bytes(len(data), "little")))


@lru_cache(4)  # jobs that are alike have blocks of the same size
def _masks(lanes: int) -> tuple[int, int]:
    """The lowest bit of each lane, and all the others."""
    ones = int.from_bytes(b"\1\0\0\0\0\0\0\0" * lanes, "little")
    return ones, (1 << 64 * lanes) - 1 - ones


def in_little_endian(numbers: "array[int]") -> "array[int]":
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
