"""MinHash and SimHash signatures of texts."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct

PRIME = np.uint64((1 << 61) - 1)
NO_SHINGLES = np.uint32(0xFFFFFFFF)  # every value of a text without any
_SEED = 42

# A permutation takes a hash h to ((h * a + b) mod 2^64) mod PRIME, of which the lower 32 bits count. They
# are the lower 32 bits of h * a + b and at most 8 more: the upper three bits, once carried around. So the
# least value is found in two steps. The lower bits alone are computed for all shingles, with numbers of 32
# bits; only those that come within 8 of the least are computed in full.
_SLACK = np.uint32(8)
_ROW = 8  # shingles that are looked at together
_AT_ONCE = 65536  # shingles whose values stay in the cache
_PERMUTATIONS_AT_ONCE = 32


def permutations(count: int) -> tuple[Any, Any]:
    """Factors and summands, the same in every process and every release."""
    generator = np.random.RandomState(seed=_SEED)
    pairs = [
        (generator.randint(1, PRIME, dtype=np.uint64), generator.randint(0, PRIME, dtype=np.uint64))
        for _ in range(count)
    ]
    return np.array([pair[0] for pair in pairs], np.uint64), np.array([pair[1] for pair in pairs], np.uint64)


class _Rows(Struct, frozen=True, eq=False):
    """The shingles of some texts in rows of the same length; a text's last row is filled up by repeating
    its last shingle."""

    hashes: Any  # uint32 [places in a row, rows]
    counts: Any  # rows a text
    starts: Any  # first row of a text
    texts: Any  # whose a row is


def least_values(hashes: Any, counts: Any, factors: Any, summands: Any) -> Any:
    """For each permutation and text the least value of the text's shingles: uint32 [permutations, texts].
    `hashes` (uint32) are those of all shingles, text by text, `counts` says how many each text has."""
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
    row_counts = -(-counts // _ROW)
    starts = np.cumsum(row_counts) - row_counts
    ends = np.cumsum(counts)
    first_of_row = np.repeat(ends - counts - starts * _ROW, row_counts) + np.arange(row_counts.sum()) * _ROW
    last_of_row = np.repeat(ends - 1, row_counts)
    places = np.minimum(first_of_row + np.arange(_ROW)[:, None], last_of_row)
    return _Rows(hashes[places], row_counts, starts, np.repeat(np.arange(len(counts)), row_counts))


def _least(rows: _Rows, factors: Any, summands: Any) -> Any:
    of_row = _least_lower_bits(rows.hashes, factors, summands)
    of_text = np.minimum.reduceat(of_row, rows.starts, axis=1)
    limit = np.minimum(of_text, NO_SHINGLES - _SLACK) + _SLACK
    limit[of_text < _SLACK] = NO_SHINGLES  # lower bits have gone around: the least may be any of that text
    candidates = np.flatnonzero(of_row <= np.repeat(limit, rows.counts, axis=1))
    permutation, row = np.divmod(candidates, of_row.shape[1])
    pair = permutation * limit.shape[1] + rows.texts[row]
    hashes = rows.hashes.take(row, axis=1)
    lower = hashes * factors.astype(np.uint32)[permutation]
    lower += (summands.astype(np.uint32) + _SLACK)[permutation]
    place, column = np.divmod(np.flatnonzero(lower <= limit.ravel()[pair]), len(row))
    values = _in_full(hashes[place, column], factors[permutation[column]], summands[permutation[column]])
    least = np.full(limit.size, NO_SHINGLES, np.uint32)
    _lower_to(least, pair[column], values)
    return least.reshape(limit.shape)


def _lower_to(least: Any, places: Any, values: Any) -> None:
    """Each place to the least value that is given for it; most are given one."""
    while len(places):
        less = values < least[places]
        places, values = places[less], values[less]
        least[places] = values


def _least_lower_bits(hashes: Any, factors: Any, summands: Any) -> Any:
    """Of each row under each permutation, raised by the slack."""
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
    """One hash (uint64) a text for each band of that many values: equal where all of them are. By far not
    equal otherwise: two of 2^64 values are the same by chance."""
    generator = np.random.Generator(np.random.PCG64(_SEED))
    weights = generator.integers(0, 2**63, rows, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    return [
        mixed(np.einsum("i,it->t", weights, values[band * rows : (band + 1) * rows].astype(np.uint64)))
        for band in range(count)
    ]


def mixed(values: Any) -> Any:
    """Numbers (uint64) spread evenly: another one for each."""
    values = values ^ (values >> np.uint64(33))
    values *= np.uint64(0xFF51AFD7ED558CCD)
    values ^= values >> np.uint64(33)
    values *= np.uint64(0xC4CEB9FE1A85EC53)
    values ^= values >> np.uint64(33)
    return values


def best_bands(threshold: float, permutations: int) -> tuple[int, int]:
    """How many bands of how many values tell texts apart best at that similarity: the area of wrong answers
    on both sides of it is least."""
    # Polynomials of no higher degree than there are permutations: this many nodes integrate them exactly.
    nodes, weights = np.polynomial.legendre.leggauss(permutations // 2 + 1)
    rows = np.arange(1, permutations + 1)[:, None]
    # Chances that a band of so many rows differs, left and right of the threshold.
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
_SIMHASH_ROW = 15  # hashes whose bits are counted together, in four bits each
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
    row_counts = -(-some // _SIMHASH_ROW)
    starts = np.cumsum(row_counts) - row_counts
    ends = np.cumsum(some)
    first_of_row = (
        np.repeat(ends - some - starts * _SIMHASH_ROW, row_counts)
        + np.arange(row_counts.sum()) * _SIMHASH_ROW
    )
    places = first_of_row + np.arange(_SIMHASH_ROW)[:, None]
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
