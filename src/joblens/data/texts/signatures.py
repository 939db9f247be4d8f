"""MinHash and SimHash signatures of texts."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct

PRIME = np.uint64((1 << 61) - 1)
NO_SHINGLES = np.uint32(0xFFFFFFFF)  # each value of a text without shingles
_SEED = 42

# A permutation maps a hash h to the lower 32 bits of ((h * a + b) mod 2^64) mod PRIME. These differ from the
# lower 32 bits of h * a + b by at most 8, the upper three bits carried around. So the minimum is found in two
# steps: compute the lower bits of all shingles in 32-bit arithmetic, then compute in full only those within 8
# of the minimum.
_SLACK = np.uint32(8)
_ROW = 8  # shingles compared together
_AT_ONCE = 65536  # shingles: their values fit the cache
_PERMUTATIONS_AT_ONCE = 32


def permutations(count: int) -> tuple[Any, Any]:
    """Returns factors and summands: the same in every process and every release."""
    generator = np.random.RandomState(seed=_SEED)
    pairs = [
        (generator.randint(1, PRIME, dtype=np.uint64), generator.randint(0, PRIME, dtype=np.uint64))
        for _ in range(count)
    ]
    return np.array([pair[0] for pair in pairs], np.uint64), np.array([pair[1] for pair in pairs], np.uint64)


class _Rows(Struct, frozen=True, eq=False):
    """Shingles of some texts in rows of equal length. The last row of a text repeats its last shingle."""

    hashes: Any  # uint32 [index in a row, rows]
    counts: Any  # rows per text
    starts: Any  # first row per text
    texts: Any  # text per row


def least_values(hashes: Any, counts: Any, factors: Any, summands: Any) -> Any:
    """Returns the minimum over a text's shingles, per permutation and text: uint32 [permutations, texts].
    `hashes` (uint32): of all shingles, text by text; `counts`: shingles per text."""
    filled = np.flatnonzero(counts)
    found = np.empty((len(factors), len(filled)), np.uint32)
    ends = np.cumsum(counts[filled])
    first = 0
    while first < len(filled):
        before = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + _AT_ONCE, side="right")))
        rows = _in_rows(hashes[before : ends[last - 1]], counts[filled[first:last]])
        for start in range(0, len(factors), _PERMUTATIONS_AT_ONCE):
            some = slice(start, start + _PERMUTATIONS_AT_ONCE)
            found[some, first:last] = _least(rows, factors[some], summands[some])
        first = last
    if len(filled) == len(counts):
        return found
    every = np.full((len(factors), len(counts)), NO_SHINGLES, np.uint32)
    every[:, filled] = found
    return every


def _in_rows(hashes: Any, counts: Any) -> _Rows:
    row_counts, starts, indexes, ends = _row_indexes(counts, _ROW)
    texts = np.repeat(np.arange(len(counts)), row_counts)
    return _Rows(hashes[np.minimum(indexes, ends - 1)], row_counts, starts, texts)


def _row_indexes(counts: Any, width: int) -> tuple[Any, Any, Any, Any]:
    """Arranges the shingles of each text in rows of `width`. Returns rows per text, first row of each text,
    shingle indexes [width, rows], which may run past the text, and per row the end of its text."""
    row_counts = -(-counts // width)
    starts = np.cumsum(row_counts) - row_counts
    ends = np.cumsum(counts)
    first = np.repeat(ends - counts - starts * width, row_counts) + np.arange(row_counts.sum()) * width
    return row_counts, starts, first + np.arange(width)[:, None], np.repeat(ends, row_counts)


def _least(rows: _Rows, factors: Any, summands: Any) -> Any:
    of_row = _least_lower_bits(rows.hashes, factors, summands)
    of_text = np.minimum.reduceat(of_row, rows.starts, axis=1)
    limit = np.minimum(of_text, NO_SHINGLES - _SLACK) + _SLACK
    limit[of_text < _SLACK] = NO_SHINGLES  # the lower bits wrapped around: any shingle may be the minimum
    candidates = np.flatnonzero(of_row <= np.repeat(limit, rows.counts, axis=1))
    permutation, row = np.divmod(candidates, of_row.shape[1])
    pair = permutation * limit.shape[1] + rows.texts[row]
    hashes = rows.hashes.take(row, axis=1)
    lower = hashes * factors.astype(np.uint32)[permutation]
    lower += (summands.astype(np.uint32) + _SLACK)[permutation]
    row_index, column = np.divmod(np.flatnonzero(lower <= limit.ravel()[pair]), len(row))
    values = _in_full(hashes[row_index, column], factors[permutation[column]], summands[permutation[column]])
    least = np.full(limit.size, NO_SHINGLES, np.uint32)
    _lower_to(least, pair[column], values)
    return least.reshape(limit.shape)


def _lower_to(least: Any, entries: Any, values: Any) -> None:
    """Lowers each of these entries to the minimum of its values."""
    while len(entries):
        less = values < least[entries]
        entries, values = entries[less], values[less]
        least[entries] = values


def _least_lower_bits(hashes: Any, factors: Any, summands: Any) -> Any:
    """Returns the minimum of each row under each permutation, plus the slack."""
    found = np.empty((len(factors), hashes.shape[1]), np.uint32)
    lower = np.empty_like(hashes)
    small_factors, small_summands = factors.astype(np.uint32), summands.astype(np.uint32) + _SLACK
    for i in range(len(factors)):
        np.multiply(hashes, small_factors[i], out=lower)
        np.add(lower, small_summands[i], out=lower)
        np.minimum.reduce(lower, axis=0, out=found[i])
    return found


def _in_full(hashes: Any, factors: Any, summands: Any) -> Any:
    values = hashes.astype(np.uint64)
    values *= factors
    values += summands
    upper = values >> np.uint64(61)
    values &= PRIME
    values += upper
    np.subtract(values, PRIME, out=values, where=values >= PRIME)
    return values.astype(np.uint32)


def bands(values: Any, count: int, rows: int) -> list[Any]:
    """Returns one hash (uint64) per text for each band of `rows` values: equal if all of them are, otherwise
    different except by a chance of 2^-64."""
    generator = np.random.Generator(np.random.PCG64(_SEED))
    weights = generator.integers(0, 2**63, rows, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    return [
        mixed(np.einsum("i,it->t", weights, values[band * rows : (band + 1) * rows].astype(np.uint64)))
        for band in range(count)
    ]


def mixed(values: Any) -> Any:
    """Spreads numbers (uint64) evenly, one to one."""
    values = values ^ (values >> np.uint64(33))
    values *= np.uint64(0xFF51AFD7ED558CCD)
    values ^= values >> np.uint64(33)
    values *= np.uint64(0xC4CEB9FE1A85EC53)
    values ^= values >> np.uint64(33)
    return values


def best_bands(threshold: float, permutations: int) -> tuple[int, int]:
    """Returns the number of bands, and of values per band, with the fewest wrong answers on both sides of the
    threshold."""
    # This many nodes integrate polynomials of up to that degree exactly.
    nodes, weights = np.polynomial.legendre.leggauss(permutations // 2 + 1)
    rows = np.arange(1, permutations + 1)[:, None]
    # Probability that a band of so many rows differs, below and above the threshold.
    below = 1 - (threshold * (nodes + 1) / 2) ** rows
    above = 1 - (threshold + (1 - threshold) * (nodes + 1) / 2) ** rows
    all_below, all_above = np.ones_like(below), np.ones_like(above)
    best, least = (0, 0), float("inf")
    for count in range(1, permutations + 1):
        most_rows = permutations // count
        all_below = all_below[:most_rows] * below[:most_rows]
        all_above = all_above[:most_rows] * above[:most_rows]
        positive, negative = (1 - all_below) @ weights * threshold, all_above @ weights * (1 - threshold)
        errors = (positive + negative) / 4
        row = int(np.argmin(errors))
        if errors[row] < least:
            best, least = (count, row + 1), float(errors[row])
    return best


BITS = 64
_COUNTED_TOGETHER = 15  # hashes: the count of a bit fits in four bits
_TEXTS_AT_ONCE = 1 << 14
_HASHES_AT_ONCE = 1 << 18


def simhashes(hashes: Any, counts: Any) -> Any:
    """Returns one SimHash (uint64) per text; `hashes` (uint64): of all shingles, text by text."""
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
    _, starts, indexes, ends = _row_indexes(some, _COUNTED_TOGETHER)
    rows = np.append(hashes, np.uint64(0))[np.where(indexes < ends, indexes, len(hashes))]
    ones = np.add.reduceat(_ones(rows), starts, axis=0, dtype=np.int32)
    is_most = ones * 2 > some[:, None]
    found[filled] = np.packbits(is_most, axis=1, bitorder="little").view("<u8").ravel()
    return found


def _ones(rows: Any) -> Any:
    """Counts how often each bit is set in a column of at most 15 numbers: uint8 [columns, 64]. Adds the
    numbers in binary for all bits in parallel, one plane per digit."""
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
    """Yields all pairs (indexes) that differ in at most `most_bits` bits, some more than once. `most_bits` is
    below the number of blocks that the 64 bits are split into, so such a pair agrees in whole blocks.
    Sorts at most about `at_once` hashes at a time."""
    steps = max(1, math.ceil(len(hashes) / max(1, at_once)))
    for chosen in itertools.combinations(_block_masks(blocks), blocks - most_bits):
        mask = np.uint64(sum(chosen))
        for step in range(steps):
            members, keys = _members(hashes, mask, step, steps)
            order = np.argsort(keys)
            rows = members[order]
            yield from _close_in_runs(hashes[rows], keys[order], rows, most_bits)


def _members(hashes: Any, mask: Any, step: int, steps: int) -> tuple[Any, Any]:
    """Returns the indexes of the hashes of this step, and a key for their bits in the mask."""
    found: list[Any] = []
    found_keys: list[Any] = []
    for first in range(0, len(hashes), _HASHES_AT_ONCE):
        keys = mixed(hashes[first : first + _HASHES_AT_ONCE] & mask)
        entries = np.flatnonzero(keys % np.uint64(steps) == step)
        found.append(entries + first)
        found_keys.append(keys[entries])
    if not found:
        return np.zeros(0, np.int64), np.zeros(0, np.uint64)
    return np.concatenate(found), np.concatenate(found_keys)


def _close_in_runs(hashes: Any, keys: Any, rows: Any, most_bits: int) -> Iterator[tuple[Any, Any]]:
    """Yields pairs within each run of equal keys: neighbours first, then with growing distance."""
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
