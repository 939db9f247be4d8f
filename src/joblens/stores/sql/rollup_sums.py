"""Sums and sketches over ended jobs by tool and status, and the statistics they make. Pure: each store keeps
them in its own tables."""

from collections.abc import Iterable

from joblens.analysis.numbers.statistics import bucket_of, distribution, merge
from joblens.model.history import Distribution, GroupStatistics, HistoryQuery, Statistics

METRICS = ("duration", "cpu", "memory")
UNITS = {"duration": 1_000_000, "cpu": 1_000_000, "memory": 1}  # stored numbers in one shown unit

# tool, status, duration_us, cpu_usec, memory_bytes of one ended job
EndedJob = tuple[str, str, int | None, int | None, int | None]


class Sum:
    """One metric of one group of jobs."""

    __slots__ = ("buckets", "count", "largest", "total")

    def __init__(self) -> None:
        self.count, self.total, self.largest = 0, 0, 0
        self.buckets: dict[int, int] = {}

    def add(self, value: int, unit: int, sign: int) -> None:
        self.count += sign
        self.total += sign * value
        if sign > 0 and value > self.largest:
            self.largest = value
        bucket = bucket_of(value / unit)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + sign

    def add_bucket(self, bucket: int, count: int, total: int, largest: int) -> None:
        self.count += count
        self.total += total
        self.largest = max(self.largest, largest)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + count

    def agrees_with(self, other: "Sum") -> bool:
        return (self.count, self.total, self.largest, self.buckets) == (
            other.count,
            other.total,
            other.largest,
            other.buckets,
        )

    def absorb(self, other: "Sum") -> None:
        self.count += other.count
        self.total += other.total
        self.largest = max(self.largest, other.largest)
        self.buckets = merge(self.buckets, other.buckets)


Sums = dict[tuple[str, str, str], Sum]  # by tool, status, metric


def sums_of(added: Iterable[EndedJob], removed: Iterable[EndedJob] = ()) -> Sums:
    sums: Sums = {}
    for jobs, sign in ((added, 1), (removed, -1)):
        for tool, status, *values in jobs:
            for metric, value in zip(METRICS, values, strict=True):
                if value is not None:
                    key = (tool, status, metric)
                    if key not in sums:
                        sums[key] = Sum()
                    sums[key].add(value, UNITS[metric], sign)
    return sums


def needs_jobs(query: HistoryQuery) -> bool:
    """The sums know tools and statuses only: any other question is answered from the jobs themselves."""
    by_time = query.since_us is not None or query.until_us is not None
    by_tag = query.tags or query.without_tag
    return bool(
        by_time
        or by_tag
        or query.names
        or query.user
        or query.external_id
        or query.run_uuid
        or query.cluster_job
    )


def statistics_of(sums: Sums) -> Statistics:
    tools = sorted({tool for tool, _, _ in sums})
    by_tool = {tool: _group({key: entry for key, entry in sums.items() if key[0] == tool}) for tool in tools}
    return Statistics(overall=_group(sums), by_tool=by_tool)


def _group(sums: Sums) -> GroupStatistics:
    by_status: dict[str, int] = {}
    whole = {metric: Sum() for metric in METRICS}
    for (_, status, metric), entry in sums.items():
        whole[metric].absorb(entry)
        if metric == "duration":  # known of every ended job
            by_status[status] = by_status.get(status, 0) + entry.count
    return GroupStatistics(
        jobs=sum(by_status.values()),
        by_status=dict(sorted(by_status.items())),
        duration_s=_distribution(whole["duration"], "duration"),
        cpu_s=_distribution(whole["cpu"], "cpu"),
        memory_peak_bytes=_distribution(whole["memory"], "memory"),
    )


def _distribution(entry: Sum, metric: str) -> Distribution:
    unit = UNITS[metric]
    return distribution(entry.buckets, total=entry.total / unit, maximum=entry.largest / unit)
