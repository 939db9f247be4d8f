"""Sums and sketches over ended jobs by tool and status: kept with every outcome, read by `statistics`."""

from collections.abc import Iterable

import apsw
import msgspec

from joblens.analysis.statistics import bucket_of, distribution, merge
from joblens.model.history import Distribution, GroupStatistics, HistoryQuery, Statistics
from joblens.stores.sqlite.selection import conditions_of
from joblens.stores.sqlite.sql import QUERIES

METRICS = ("duration", "cpu", "memory")
_UNITS = {"duration": 1_000_000, "cpu": 1_000_000, "memory": 1}  # stored numbers in one shown unit

# tool, status, duration_us, cpu_usec, memory_bytes of one ended job
EndedJob = tuple[str, str, int | None, int | None, int | None]


class _Sum:
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

    def agrees_with(self, other: "_Sum") -> bool:
        return (self.count, self.total, self.largest, self.buckets) == (
            other.count,
            other.total,
            other.largest,
            other.buckets,
        )

    def absorb(self, other: "_Sum") -> None:
        self.count += other.count
        self.total += other.total
        self.largest = max(self.largest, other.largest)
        self.buckets = merge(self.buckets, other.buckets)


Sums = dict[tuple[str, str, str], _Sum]  # by tool, status, metric


def sums_of(added: Iterable[EndedJob], removed: Iterable[EndedJob] = ()) -> Sums:
    sums: Sums = {}
    for jobs, sign in ((added, 1), (removed, -1)):
        for tool, status, *values in jobs:
            for metric, value in zip(METRICS, values, strict=True):
                if value is not None:
                    key = (tool, status, metric)
                    if key not in sums:
                        sums[key] = _Sum()
                    sums[key].add(value, _UNITS[metric], sign)
    return sums


def record_changes(
    connection: apsw.Connection, added: Iterable[EndedJob], removed: Iterable[EndedJob]
) -> None:
    """Inside the transaction that writes the outcomes, after the jobs' own rows."""
    removed = list(removed)
    _store(connection, sums_of(added, removed))
    for tool, status in {(tool, status) for tool, status, *_ in removed}:
        connection.execute(QUERIES["drop_empty_rollup"], (tool, status))
        connection.execute(QUERIES["drop_empty_sketch"], (tool, status))
        connection.execute(QUERIES["refresh_largest"], (tool, status))


def rebuild(connection: apsw.Connection) -> None:
    connection.execute(QUERIES["clear_rollup"])
    connection.execute(QUERIES["clear_sketch"])
    _store(connection, sums_from_jobs(connection))


def sums_from_jobs(connection: apsw.Connection) -> Sums:
    rows = connection.execute(QUERIES["ended_numbers"].format(conditions=QUERIES["where_any"]))
    return sums_of(rows)


def stored_sums(connection: apsw.Connection, query: HistoryQuery) -> Sums:
    wanted = (_json_or_none(query.tools), _json_or_none(query.statuses))
    sums: Sums = {}
    for tool, status, metric, count, total, largest in connection.execute(QUERIES["rollup"], wanted):
        entry = sums[tool, status, metric] = _Sum()
        entry.count, entry.total, entry.largest = count, total, largest
    for tool, status, metric, bucket, count in connection.execute(QUERIES["sketch"], wanted):
        sums[tool, status, metric].buckets[bucket] = count
    return sums


def statistics(connection: apsw.Connection, query: HistoryQuery) -> Statistics:
    by_time = query.since_us is not None or query.until_us is not None
    if not (by_time or query.tags or query.names or query.user or query.run_uuid is not None):
        return _statistics(stored_sums(connection, query))
    conditions, parameters = conditions_of(query)
    sql = QUERIES["ended_numbers"].format(conditions=conditions)
    return _statistics(sums_of(connection.execute(sql, parameters)))


def _statistics(sums: Sums) -> Statistics:
    tools = sorted({tool for tool, _, _ in sums})
    by_tool = {tool: _group({key: entry for key, entry in sums.items() if key[0] == tool}) for tool in tools}
    return Statistics(overall=_group(sums), by_tool=by_tool)


def _group(sums: Sums) -> GroupStatistics:
    by_status: dict[str, int] = {}
    whole = {metric: _Sum() for metric in METRICS}
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


def _distribution(entry: _Sum, metric: str) -> Distribution:
    unit = _UNITS[metric]
    return distribution(entry.buckets, total=entry.total / unit, maximum=entry.largest / unit)


def _store(connection: apsw.Connection, sums: Sums) -> None:
    connection.executemany(
        QUERIES["add_to_rollup"],
        [(*key, entry.count, entry.total, entry.largest) for key, entry in sums.items()],
    )
    connection.executemany(
        QUERIES["add_to_sketch"],
        [(*key, bucket, count) for key, entry in sums.items() for bucket, count in entry.buckets.items()],
    )


def _json_or_none(values: tuple[str, ...]) -> str | None:
    return msgspec.json.encode(values).decode() if values else None
