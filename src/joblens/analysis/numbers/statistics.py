"""Distributions in little space: logarithmic buckets, a few integers for any number of values.

Buckets of two groups of jobs are merged by adding counts, so a store can keep them per tool and day and
still answer for any selection. Quantiles of buckets are within 1% of the exact ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from joblens.model.values.units import MIB

if TYPE_CHECKING:
    from joblens.model.history import Distribution, GroupStatistics, Statistics

# Half-width of a bucket relative to its value. The rest of the promised 1% is for rounding.
_RELATIVE_ERROR = 0.0095
_GAMMA = (1 + _RELATIVE_ERROR) / (1 - _RELATIVE_ERROR)
LOG_GAMMA = math.log(_GAMMA)
SMALLEST = 1e-9  # smaller values are meaningless in seconds or bytes and stored as zero
ZERO_BUCKET = -1_000_000


def bucket_of(value: float) -> int:
    """Returns the bucket of a value of at least 0; below a billionth, ZERO_BUCKET."""
    return ZERO_BUCKET if value < SMALLEST else math.ceil(math.log(value) / LOG_GAMMA)


def value_of(bucket: int) -> float:
    """Returns the value that represents a bucket: at most 1% from every value in it."""
    return 0.0 if bucket == ZERO_BUCKET else 2 * math.exp(bucket * LOG_GAMMA) / (_GAMMA + 1)


def merge(*parts: Mapping[int, int]) -> dict[int, int]:
    merged: dict[int, int] = {}
    for part in parts:
        for bucket, count in part.items():
            merged[bucket] = merged.get(bucket, 0) + count
    return merged


def quantile(buckets: Mapping[int, int], q: float) -> float | None:
    """Returns the smallest value that a share `q` (0 to 1) of all values do not exceed (nearest rank: with
    three values p90 is the largest); None: no values."""
    rank = nearest_rank(q, sum(buckets.values()))
    cumulative = 0
    for bucket, count in sorted(buckets.items()):
        cumulative += count
        if cumulative > rank:
            return value_of(bucket)
    return None


def nearest_rank(q: float, count: int) -> int:
    """Returns the index of a quantile among `count` sorted values."""
    whole = round(q * count, 9)  # 0.07 * 100 is a little more than 7 in floating point
    return max(math.ceil(whole) - 1, 0)


def distribution(buckets: Mapping[int, int], *, total: float, maximum: float | None) -> Distribution:
    """Returns the distribution of one number from its buckets, exact sum and maximum."""
    from joblens.model.history import Distribution

    count = sum(buckets.values())
    if not count:
        return Distribution()
    mean = total / count

    def percentile(q: float) -> float | None:
        if nearest_rank(q, count) == count - 1 and maximum is not None:
            return maximum  # known exactly
        if len(buckets) == 1:
            return mean  # all nearly equal: nearer than the bucket's middle
        value = quantile(buckets, q)
        return value if value is None or maximum is None else min(value, maximum)

    p50, p90, p95, p99 = map(percentile, (0.5, 0.9, 0.95, 0.99))
    return Distribution(count=count, total=total, mean=mean, p50=p50, p90=p90, p95=p95, p99=p99, max=maximum)


def summary_form(statistics: Statistics) -> dict[str, object]:
    """Returns the summary in the history form, with the same keys with and without jobs."""
    overall = statistics.overall
    return {
        "total_jobs": overall.jobs,
        "successful": overall.successful,
        "failed": overall.unsuccessful,
        "success_rate": round(overall.success_percent, 2),
        "total_cpu_time_seconds": round(overall.cpu_s.total, 6),
        "total_duration_seconds": round(overall.duration_s.total, 6),
        "average_duration_seconds": round(overall.duration_s.mean or 0.0, 6),
        "by_tool": {tool: _tool_form(group) for tool, group in sorted(statistics.by_tool.items())},
        "by_status": dict(sorted(overall.by_status.items())),
        "duration_seconds": _percentile_form(overall.duration_s, 1),
        "cpu_total_seconds": _percentile_form(overall.cpu_s, 1),
        "memory_peak_mb": _percentile_form(overall.memory_peak_bytes, MIB),
    }


def _tool_form(group: GroupStatistics) -> dict[str, object]:
    return {
        "count": group.jobs,
        "successful": group.successful,
        "failed": group.unsuccessful,
        "success_rate": round(group.success_percent, 2),
        "total_duration": round(group.duration_s.total, 6),
        "total_cpu_time_seconds": round(group.cpu_s.total, 6),
        "duration_seconds": _percentile_form(group.duration_s, 1),
        "cpu_total_seconds": _percentile_form(group.cpu_s, 1),
        "memory_peak_mb": _percentile_form(group.memory_peak_bytes, MIB),
    }


def _percentile_form(spread: Distribution, unit: int) -> dict[str, float | None]:
    numbers = {
        "mean": spread.mean,
        "p50": spread.p50,
        "p90": spread.p90,
        "p95": spread.p95,
        "p99": spread.p99,
        "max": spread.max,
    }
    return {name: None if value is None else round(value / unit, 6) for name, value in numbers.items()}
