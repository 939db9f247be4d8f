"""Rows that belong together, directly or through others: a forest in which every row points to an earlier
one of its cluster, or to itself when it is the first."""

from typing import Any

import numpy as np


def alone(parents: Any) -> None:
    """At first every row is a cluster of its own. `parents` has room for one number a row."""
    step = 1 << 20
    for start in range(0, len(parents), step):
        parents[start : start + step] = np.arange(start, min(start + step, len(parents)), dtype=parents.dtype)


def join(parents: Any, left: Any, right: Any) -> None:
    """The clusters of left[i] and right[i] become one, for every i."""
    while len(left):
        left, right = first_of_cluster(parents, left), first_of_cluster(parents, right)
        differ = left != right
        left, right = left[differ], right[differ]
        later = np.maximum(left, right)
        # Where several want the same parent one gets it; the others join that one in the next round.
        parents[later] = np.minimum(left, right)


def first_of_cluster(parents: Any, rows: Any) -> Any:
    found = parents[rows]
    while True:
        further = parents[found]
        if np.array_equal(further, found):
            return found
        # Written back at once: who stands between here and the first gets there in twice the steps.
        parents[rows] = found = further


def row_type(count: int) -> Any:
    return np.uint32 if count < 2**32 else np.uint64
