"""Distributions of plain values."""

from collections import Counter
from collections.abc import Iterable

from joblens.analysis.numbers.statistics import bucket_of, distribution
from joblens.model.history import Distribution


def buckets_of(values: Iterable[float]) -> dict[int, int]:
    return Counter(map(bucket_of, values))


def distribution_of(values: Iterable[float]) -> Distribution:
    known = list(values)
    return distribution(buckets_of(known), total=sum(known), maximum=max(known, default=None))
