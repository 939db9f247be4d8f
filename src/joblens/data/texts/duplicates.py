"""Duplicate rows among all partitions in bounded memory, and clusters of connected rows."""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from joblens.data.base.operator import Signatures

_BYTES_A_ROW = 80  # hashes, row numbers, their order and temporary space of sorting


def later_equals(
    parts: Sequence[Signatures], columns: Sequence[str], *, budget_bytes: int
) -> Iterator[tuple[Any, Any]]:
    """Yields rows that equal an earlier row in these columns, with the first such row.

    Columns are uint64, evenly distributed. Rows are numbered through all parts and
    yielded once, in no order.
    """
    total = count_rows(parts)
    bits = max(0, (total * _BYTES_A_ROW // max(1, budget_bytes)).bit_length())
    for bucket in range(1 << bits):
        rows, keys = _bucket(parts, columns, bucket, bits)
        yield _later_in_bucket(rows, keys)


def count_rows(parts: Sequence[Signatures]) -> int:
    return sum(part.rows for part in parts)


def numbers(count: int, kind: Any, *, budget_bytes: int, scratch: str, name: str) -> Any:
    """Allocates one number per row: in memory, or in a mapped file if that would exceed the budget."""
    if count * np.dtype(kind).itemsize <= budget_bytes // 4:
        return np.zeros(count, kind)
    mapped = np.memmap(os.path.join(scratch, name), kind, mode="w+", shape=(count,))
    return np.asarray(mapped)  # numpy is much slower with subclasses of ndarray


def masks(parts: Sequence[Signatures], keep: Any) -> Iterable[Any]:
    """Returns the mask of all rows as one Arrow mask per part."""
    first = 0
    for part in parts:
        yield pa.array(np.asarray(keep[first : first + part.rows], np.bool_))
        first += part.rows


def _bucket(
    parts: Sequence[Signatures], columns: Sequence[str], bucket: int, bits: int
) -> tuple[Any, list[Any]]:
    rows: list[Any] = []
    keys: list[list[Any]] = [[] for _ in columns]
    first = 0
    for part in parts:
        values = [part.batch.column(name).to_numpy(zero_copy_only=True) for name in columns]
        if bits:
            chosen = np.flatnonzero(values[0] >> np.uint64(64 - bits) == bucket)
            values = [column[chosen] for column in values]
            rows.append(chosen + first)
        else:
            rows.append(np.arange(first, first + part.rows))
        for column, found in zip(keys, values, strict=True):
            column.append(found)
        first += part.rows
    if not rows:
        return np.zeros(0, np.int64), [np.zeros(0, np.uint64) for _ in columns]
    return np.concatenate(rows), [np.concatenate(column) for column in keys]


def _later_in_bucket(rows: Any, keys: list[Any]) -> tuple[Any, Any]:
    """Compares in full only rows that share their first hash; most are alone."""
    order = np.argsort(keys[0])
    hashes = keys[0][order]
    is_same = hashes[1:] == hashes[:-1]
    is_shared = np.zeros(len(rows), np.bool_)
    is_shared[1:] = is_same
    is_shared[:-1] |= is_same
    shared = order[is_shared]
    shared = shared[np.lexsort((rows[shared], *(key[shared] for key in reversed(keys))))]
    is_first = np.ones(len(shared), np.bool_)
    if len(shared):
        same = np.ones(len(shared) - 1, np.bool_)
        for key in keys:
            same &= key[shared[1:]] == key[shared[:-1]]
        is_first[1:] = ~same
    rows = rows[shared]
    firsts = np.maximum.accumulate(np.where(is_first, np.arange(len(rows)), 0))
    return rows[~is_first], rows[firsts][~is_first]


def alone(parents: Any) -> None:
    """Makes every row a cluster of its own. `parents` holds one number per row."""
    step = 1 << 20
    for start in range(0, len(parents), step):
        parents[start : start + step] = np.arange(start, min(start + step, len(parents)), dtype=parents.dtype)


def join(parents: Any, left: Any, right: Any) -> None:
    """Joins the clusters of left[i] and right[i], for every i."""
    while len(left):
        left, right = first_of_cluster(parents, left), first_of_cluster(parents, right)
        differ = left != right
        left, right = left[differ], right[differ]
        later = np.maximum(left, right)
        # If several rows want the same parent, one gets it; the others join that one in the next round.
        parents[later] = np.minimum(left, right)


def first_of_cluster(parents: Any, rows: Any) -> Any:
    found = parents[rows]
    while True:
        further = parents[found]
        if np.array_equal(further, found):
            return found
        # Written back at once: path halving.
        parents[rows] = found = further


def row_type(count: int) -> Any:
    return np.uint32 if count < 2**32 else np.uint64
