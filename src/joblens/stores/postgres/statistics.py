"""Statistics over ended jobs, and the selection of jobs, in a PostgreSQL store."""

from typing import Any

from msgspec.structs import replace

from joblens.analysis.numbers.statistics import LOG_GAMMA, SMALLEST, ZERO_BUCKET
from joblens.model.history import HistoryQuery, SortKey, Statistics
from joblens.stores.postgres.connection import Connection
from joblens.stores.postgres.sql import asker, queries_of
from joblens.stores.sql import queries
from joblens.stores.sql.batch import METRICS, UNITS, Sum, Sums, needs_jobs, statistics_of, sums_of

_SORT_KEYS = {
    SortKey.STARTED: "job.began_at_us",
    SortKey.ENDED: "job.ended_at_us",
    SortKey.DURATION: "job.duration_us",
    SortKey.CPU: "job.cpu_usec",
    SortKey.MEMORY: "job.memory_bytes",
    SortKey.NAME: "job.name",
}
_ALWAYS_KNOWN = (SortKey.STARTED, SortKey.NAME)
_LIKE = str.maketrans({"\\": "\\\\", "%": "\\%", "_": "\\_", "*": "%", "?": "_"})

Condition = tuple[str, tuple[Any, ...]]


def job_numbers(connection: Connection, query: HistoryQuery) -> list[int]:
    """Jobs of which the sort key is unknown come last, whichever way the others are sorted. They are asked
    for by themselves: no index has both in that order."""
    limit = None if query.limit is None else max(0, query.limit)
    if query.sort in _ALWAYS_KNOWN:
        return _select(connection, query, None, limit)
    found = _select(connection, query, "where_key_known", limit)
    if limit is None or len(found) < limit:
        rest = None if limit is None else limit - len(found)
        found += _select(connection, query, "where_key_unknown", rest)
    return found


def conditions_of(query: HistoryQuery) -> Condition:
    texts = queries_of("reading.sql")
    found = queries.conditions_of(query, _like).values()
    text = " AND ".join(texts[name] for name, _ in found) or texts["where_any"]
    return text, tuple(value for _, values in found for value in values)


def _select(connection: Connection, query: HistoryQuery, key_is: str | None, limit: int | None) -> list[int]:
    texts, key = queries_of("reading.sql"), _SORT_KEYS[query.sort]
    conditions, values = conditions_of(query)
    if key_is is not None:
        conditions += " AND " + texts[key_is].format(key=key)
    sql = texts["history"].format(
        conditions=conditions, key=key, direction="ASC" if query.ascending else "DESC"
    )
    return [number for (number,) in connection.execute(sql.encode(), (*values, limit))]


def _like(pattern: str) -> str:
    """Only * and ? are special to those who ask."""
    return pattern.translate(_LIKE)


def statistics(connection: Connection, query: HistoryQuery) -> Statistics:
    if query.without_tag and not asker(connection)("has_tag", query.without_tag):
        query = replace(query, without_tag="")
    return statistics_of(
        sums_by_server(connection, query) if needs_jobs(query) else stored_sums(connection, query)
    )


def sums_by_server(connection: Connection, query: HistoryQuery) -> Sums:
    """From the jobs, put together where they are."""
    conditions, values = conditions_of(query)
    sql = queries_of("reading.sql")["sums_of_ended"].format(conditions=conditions)
    units = (float(UNITS[metric]) for metric in METRICS)
    rows = connection.execute(sql.encode(), (SMALLEST, ZERO_BUCKET, LOG_GAMMA, *units, *values))
    sums: Sums = {}
    for tool, status, metric, bucket, count, total, largest in rows:
        sums.setdefault((tool, status, metric), Sum()).add_bucket(bucket, count, int(total), largest)
    return sums


def sums_from_jobs(connection: Connection, query: HistoryQuery) -> Sums:
    """The same by the arithmetic that the kept sums were made with, to the last bit."""
    conditions, values = conditions_of(query)
    sql = queries_of("reading.sql")["ended_numbers"].format(conditions=conditions)
    return sums_of(connection.execute(sql.encode(), values))


def stored_sums(connection: Connection, query: HistoryQuery) -> Sums:
    """Over all shards."""
    ask = asker(connection)
    wanted = list(query.tools) or None, [str(status) for status in query.statuses] or None
    sums: Sums = {}
    for tool, status, metric, count, total, largest in ask("rollup", *wanted):
        entry = sums[tool, status, metric] = Sum()
        entry.count, entry.total, entry.largest = count, int(total), largest
    for tool, status, metric, bucket, count in ask("sketch", *wanted):
        if (tool, status, metric) in sums:
            sums[tool, status, metric].buckets[bucket] = count
    return sums
