"""Column encoding for blocks of few samples: optimized for speed.

The columns are concatenated in one flat list, so difference, zigzag and byte shuffle are each one pass in C.
"""

import sys
from array import array
from collections.abc import Container
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
    return b"".join([data[index::8] for index in range(8)])


def unpack_columns(
    data: bytes, column_count: int, count: int, _wanted: Container[int] | None = None
) -> list[list[int]]:
    length = column_count * count
    if len(data) != 8 * length:
        raise ValueError(f"{len(data)} bytes of numbers instead of {8 * length}")
    joined = bytearray(len(data))
    for index in range(8):
        joined[index::8] = data[index * length : (index + 1) * length]
    flat = list(accumulate(_unzigzag(joined)))
    if flat and (min(flat) < _INT64_MIN or max(flat) > _INT64_MAX):
        flat = list(map(_wrapped, flat))
    return [flat[start : start + count] for start in range(0, length, count)]


def _wrapped(value: int) -> int:
    return (value - _INT64_MIN) % (1 << 64) + _INT64_MIN


# Zigzag maps small numbers of either sign to small numbers. It is applied to all 64-bit lanes of one large
# integer at once.


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


@lru_cache(4)  # similar jobs have blocks of the same size
def _masks(lanes: int) -> tuple[int, int]:
    """Returns masks for the lowest bit of each lane, and for all other bits."""
    ones = int.from_bytes(b"\1\0\0\0\0\0\0\0" * lanes, "little")
    return ones, (1 << 64 * lanes) - 1 - ones


def in_little_endian(numbers: "array[int]") -> "array[int]":
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
