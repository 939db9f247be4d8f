"""Column encoding for blocks of many samples: optimized for size.

Each column is its first value, the median of its differences, and the deviations from that median, divided by
their common divisor (a page, a clock tick), zigzagged and stored bit by bit: noise of five bits takes five
bits, a steady column none.
"""

import math
from array import array
from collections.abc import Container, Iterable
from itertools import accumulate
from operator import sub

from joblens.stores.samples import columns_flat

# For each bit of a byte: '1' if it is set, else '0', as int() reads them.
_DIGIT_OF_BIT = [bytes(0x31 if value >> bit & 1 else 0x30 for value in range(256)) for bit in range(8)]
# … and back: the value of that bit for the digit.
_BIT_OF_DIGIT = [bytes((1 << bit) if value == 0x31 else 0 for value in range(256)) for bit in range(8)]


def pack_columns(columns: list[list[int]]) -> bytes:
    """Packs columns. Raises OverflowError if a value or deviation does not fit in 64 bits."""
    firsts: list[int] = []
    middles: list[int] = []
    steps: list[int] = []
    widths = bytearray()
    rows: list[bytes] = []
    for column in columns:
        differences = list(map(sub, column[1:], column))
        middle = sorted(differences)[len(differences) // 2] if differences else 0
        firsts.append(column[0])
        middles.append(middle)
        width, step = 0, 1
        if differences.count(middle) != len(differences):
            offsets = [value - middle for value in differences]
            step = math.gcd(*offsets)
            if step > 1:
                offsets = [off // step for off in offsets]
            width = _append_bit_rows(rows, [(2 * off) if off >= 0 else (-2 * off - 1) for off in offsets])
        steps.append(step)
        widths.append(width)
    return bytes(widths) + columns_flat.pack_columns([firsts, middles, steps]) + b"".join(rows)


def unpack_columns(
    data: bytes, column_count: int, count: int, wanted: Container[int] | None = None
) -> list[list[int]]:
    """`wanted`: indexes of columns; the others are empty."""
    position = (1 + 3 * 8) * column_count
    widths = data[:column_count]
    heads = columns_flat.unpack_columns(data[column_count:position], 3, column_count)
    row_size = (count - 1 + 7) // 8
    columns: list[list[int]] = []
    for column, (width, first, middle, step) in enumerate(zip(widths, *heads, strict=True)):
        end = position + width * row_size
        if wanted is not None and column not in wanted:
            position = end
            columns.append([])
            continue
        if not width:
            columns.append([first + middle * index for index in range(count)] if middle else [first] * count)
            continue
        offsets = _from_bit_rows(data[position:end], width, row_size, count - 1)
        position = end
        columns.append(list(accumulate(_differences(offsets, width, middle, step), initial=first)))
    if position != len(data):
        raise ValueError(f"{len(data)} bytes of numbers instead of {position}")
    return columns


def _differences(offsets: "array[int]", width: int, middle: int, step: int) -> Iterable[int]:
    if 1 << width > len(offsets):
        return [middle + step * (off >> 1 ^ -(off & 1)) for off in offsets]
    # Every value that there can be is computed once, which is quicker than once for each sample.
    table = [middle + step * (off >> 1 ^ -(off & 1)) for off in range(1 << width)]
    return map(table.__getitem__, offsets)


def _append_bit_rows(rows: list[bytes], numbers: list[int]) -> int:
    """Appends bit 0 of all numbers, then bit 1, and so on. Returns the number of bits."""
    width = max(numbers).bit_length()
    row_size = (len(numbers) + 7) // 8
    planes = array("Q", numbers)
    data = columns_flat.in_little_endian(planes).tobytes()
    for bit in range(width):
        digits = data[bit // 8 :: 8].translate(_DIGIT_OF_BIT[bit % 8])
        rows.append(int(digits, 2).to_bytes(row_size, "big"))
    return width


def _from_bit_rows(data: bytes, width: int, row_size: int, length: int) -> "array[int]":
    joined = bytearray(8 * length)
    for plane in range((width + 7) // 8):
        combined = 0
        for bit in range(8 * plane, min(width, 8 * plane + 8)):
            row = int.from_bytes(data[bit * row_size : (bit + 1) * row_size], "big")
            digits = format(row, f"0{length}b").encode()
            combined |= int.from_bytes(digits.translate(_BIT_OF_DIGIT[bit % 8]), "big")
        joined[plane::8] = combined.to_bytes(length, "big")
    return columns_flat.in_little_endian(array("Q", bytes(joined)))
