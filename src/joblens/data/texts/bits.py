"""One bit for each byte of a text column. Questions about single characters become questions about bits: 64
are answered at once, and counts for each row need no loop over rows."""

from typing import Any

import numpy as np

BLOCK = 1 << 18  # bytes worked on at once, so that what comes between stays in the processor's cache


class Bits:
    """Filled block by block, then asked. Bits behind the last byte are zero."""

    def __init__(self, size: int) -> None:
        self._bytes = np.zeros((size // 64 + 1) * 8, np.uint8)

    def fill(self, start: int, mask: Any) -> None:
        """`mask`: something that is zero where the bit is, from byte `start` on, which is a block's."""
        packed = np.packbits(mask, bitorder="little")
        self._bytes[start // 8 : start // 8 + len(packed)] = packed

    def set(self, positions: Any) -> None:
        np.bitwise_or.at(self._bytes, positions >> 3, (1 << (positions & 7)).astype(np.uint8))

    @property
    def words(self) -> Any:
        return self._bytes.view("<u8")


def of_words(words: Any) -> Bits:
    bits = Bits(0)
    bits._bytes = np.ascontiguousarray(words).view(np.uint8)  # noqa: SLF001 - its own kind
    return bits


def count_before(bits: Bits, positions: Any) -> Any:
    """How many bits are set before each of these positions."""
    words = bits.words
    sums = np.zeros(len(words) + 1, np.int64)
    np.cumsum(np.bitwise_count(words), out=sums[1:])
    index = positions >> 6
    below = (np.uint64(1) << (positions & 63).astype(np.uint64)) - np.uint64(1)
    return sums[index] + np.bitwise_count(words[index] & below)


def count_rows(bits: Bits, offsets: Any) -> Any:
    """How many are set in each row."""
    return np.diff(count_before(bits, offsets))


def positions(bits: Bits, size: int) -> Any:
    return np.flatnonzero(np.unpackbits(bits.words.view(np.uint8), count=size, bitorder="little"))


def runs_end(starts: Any, runs: Any) -> Any:
    """Words of bits: `runs` with those of `starts`, which lie in them, carried to the first bit behind each
    run. Other bits of the answer mean nothing inside runs."""
    total = starts + runs
    carry = total < starts
    while carry.any():
        into = np.zeros(len(total), np.uint64)
        into[1:] = carry[:-1]
        total = total + into
        carry = (total == 0) & (into == 1)
    return total


def shifted(words: Any) -> Any:
    """Every bit one place on."""
    moved = words << np.uint64(1)
    moved[1:] |= words[:-1] >> np.uint64(63)
    return moved


_REVERSED = np.packbits(np.unpackbits(np.arange(256, dtype=np.uint8)), bitorder="little")


def reversed_bits(words: Any) -> Any:
    """Read from the end."""
    return _REVERSED[words.view(np.uint8)[::-1]].view("<u8")


def last_before(bits: Bits, places: Any) -> Any:
    """The last set bit before each place; -1 where there is none."""
    words = bits.words
    filled = np.where(words != 0, np.arange(len(words)), -1)
    nearest = np.maximum.accumulate(filled)
    index = places >> 6
    below = words[index] & ((np.uint64(1) << (places & 63).astype(np.uint64)) - np.uint64(1))
    earlier = np.where(index > 0, nearest[index - 1], -1)
    word_index = np.where(below != 0, index, earlier)
    word = np.where(below != 0, below, words[word_index])
    for step in (1, 2, 4, 8, 16, 32):
        word |= word >> np.uint64(step)
    return np.where(word_index >= 0, word_index * 64 + np.bitwise_count(word) - 1, -1)


def first_from(bits: Bits, places: Any, size: int) -> Any:
    """The first set bit at each place or behind it; `size` where there is none."""
    words = bits.words
    filled = np.where(words != 0, np.arange(len(words)), len(words))
    nearest = np.append(np.minimum.accumulate(filled[::-1])[::-1], len(words))
    index = places >> 6
    above = words[index] & (np.uint64(2**64 - 1) << (places & 63).astype(np.uint64))
    word_index = np.where(above != 0, index, nearest[index + 1])
    word = np.where(above != 0, above, words[np.minimum(word_index, len(words) - 1)])
    lowest = np.bitwise_count((word & (~word + np.uint64(1))) - np.uint64(1))
    return np.where(word_index < len(words), word_index * 64 + lowest, size)
