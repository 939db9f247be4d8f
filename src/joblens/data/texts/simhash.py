"""SimHash: 64 bits a text, of which each says what most of its shingles' hashes say. Similar texts differ in
few bits."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from joblens.data.texts.minhash import mixed

BITS = 64
_ROW = 15  # hashes whose bits are counted together, in four bits each
_TEXTS_AT_ONCE = 1 << 14
_HASHES_AT_ONCE = 1 << 18


def simhashes(hashes: Any, counts: Any) -> Any:
    """One (uint64) a text; `hashes` (uint64) are those of all shingles, text by text."""
    found = np.zeros(len(counts), np.uint64)
    ends = np.cumsum(counts)
    for first in range(0, len(counts), _TEXTS_AT_ONCE):
        some = counts[first : first + _TEXTS_AT_ONCE]
        start = ends[first] - counts[first]
        found[first : first + len(some)] = _majorities(hashes[start : start + some.sum()], some)
    return found


def _majorities(hashes: Any, counts: Any) -> Any:
    filled = np.flatnonzero(counts)
    found = np.zeros(len(counts), np.uint64)
    if not len(filled):
        return found
    some = counts[filled]
    row_counts = -(-some // _ROW)
    starts = np.cumsum(row_counts) - row_counts
    ends = np.cumsum(some)
    first_of_row = np.repeat(ends - some - starts * _ROW, row_counts) + np.arange(row_counts.sum()) * _ROW
    places = first_of_row + np.arange(_ROW)[:, None]
    rows = np.append(hashes, np.uint64(0))[
        np.where(places < np.repeat(ends, row_counts), places, len(hashes))
    ]
    ones = np.add.reduceat(_ones(rows), starts, axis=0, dtype=np.int32)
    is_most = ones * 2 > some[:, None]
    found[filled] = np.packbits(is_most, axis=1, bitorder="little").view("<u8").ravel()
    return found


def _ones(rows: Any) -> Any:
    """How often each bit is set in a column of at most 15 numbers: uint8 [columns, 64]. Counted for all bits
    side by side: the numbers are added up in binary, one digit a plane."""
    planes = [np.zeros(rows.shape[1], np.uint64) for _ in range(4)]
    for row in rows:
        carried = row
        for i, plane in enumerate(planes):
            planes[i], carried = plane ^ carried, plane & carried
    total = np.zeros((rows.shape[1], BITS), np.uint8)
    for i, plane in enumerate(planes):
        digits = np.unpackbits(plane.astype("<u8").view(np.uint8).reshape(-1, 8), axis=1, bitorder="little")
        total += digits << i
    return total


def neighbours(hashes: Any, blocks: int, most_bits: int, *, at_once: int) -> Iterator[tuple[Any, Any]]:
    """All pairs (by number) that differ in no more than that many bits, which is less than the number of
    blocks that the 64 bits are cut into: such two agree in some blocks wholly. Pairs may come again.
    No more than about `at_once` hashes are sorted at a time."""
    steps = max(1, math.ceil(len(hashes) / max(1, at_once)))
    for chosen in itertools.combinations(_block_masks(blocks), blocks - most_bits):
        mask = np.uint64(sum(chosen))
        for step in range(steps):
            members, keys = _members(hashes, mask, step, steps)
            order = np.argsort(keys)
            rows = members[order]
            yield from _close_in_runs(hashes[rows], keys[order], rows, most_bits)


def _members(hashes: Any, mask: Any, step: int, steps: int) -> tuple[Any, Any]:
    """The hashes whose turn it is, by number, and what those that agree in the mask have in common."""
    found: list[Any] = []
    found_keys: list[Any] = []
    for first in range(0, len(hashes), _HASHES_AT_ONCE):
        keys = mixed(hashes[first : first + _HASHES_AT_ONCE] & mask)
        places = np.flatnonzero(keys % np.uint64(steps) == step)
        found.append(places + first)
        found_keys.append(keys[places])
    if not found:
        return np.zeros(0, np.int64), np.zeros(0, np.uint64)
    return np.concatenate(found), np.concatenate(found_keys)


def _close_in_runs(hashes: Any, keys: Any, rows: Any, most_bits: int) -> Iterator[tuple[Any, Any]]:
    """Pairs within each run of equal keys: first those beside each other, then those one further apart."""
    left = np.arange(len(keys))
    distance = 1
    while len(left):
        left = left[left + distance < len(keys)]
        left = left[keys[left] == keys[left + distance]]
        close = left[np.bitwise_count(hashes[left] ^ hashes[left + distance]) <= most_bits]
        if len(close):
            yield rows[close], rows[close + distance]
        distance += 1


def _block_masks(blocks: int) -> list[int]:
    bounds = [i * BITS // blocks for i in range(blocks + 1)]
    return [(1 << end) - (1 << start) for start, end in itertools.pairwise(bounds)]
