"""Statistics from the kept sums, or from the jobs where the sums do not know enough."""

from joblens.model.history import HistoryQuery, Statistics
from joblens.stores.postgres.asking import asker
from joblens.stores.postgres.connection import Connection
from joblens.stores.postgres.selection import conditions_of
from joblens.stores.postgres.sql import queries_of
from joblens.stores.rollup_sums import Sum, Sums, needs_jobs, statistics_of, sums_of


def statistics(connection: Connection, query: HistoryQuery) -> Statistics:
    return statistics_of(
        sums_from_jobs(connection, query) if needs_jobs(query) else stored_sums(connection, query)
    )


def sums_from_jobs(connection: Connection, query: HistoryQuery) -> Sums:
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
