"""Statistics over ended jobs in a PostgreSQL store."""

from msgspec.structs import replace

from joblens.analysis.numbers.statistics import LOG_GAMMA, SMALLEST, ZERO_BUCKET
from joblens.model.history import HistoryQuery, Statistics
from joblens.stores.postgres.connection import Connection
from joblens.stores.postgres.selection import conditions_of
from joblens.stores.postgres.sql import asker, queries_of
from joblens.stores.sql.batch import METRICS, UNITS, Sum, Sums, needs_jobs, statistics_of, sums_of


def statistics(connection: Connection, query: HistoryQuery) -> Statistics:
    if query.without_tag and not asker(connection)("has_tag", query.without_tag):
        query = replace(query, without_tag="")
    return statistics_of(
        sums_by_server(connection, query) if needs_jobs(query) else stored_sums(connection, query)
    )


def sums_by_server(connection: Connection, query: HistoryQuery) -> Sums:
    """Aggregates the jobs on the server."""
    conditions, values = conditions_of(query)
    sql = queries_of("reading.sql")["sums_of_ended"].format(conditions=conditions)
    units = (float(UNITS[metric]) for metric in METRICS)
    rows = connection.execute(sql.encode(), (SMALLEST, ZERO_BUCKET, LOG_GAMMA, *units, *values))
    sums: Sums = {}
    for tool, status, metric, bucket, count, total, largest in rows:
        sums.setdefault((tool, status, metric), Sum()).add_bucket(bucket, count, int(total), largest)
    return sums


def sums_from_jobs(connection: Connection, query: HistoryQuery) -> Sums:
    """Aggregates the jobs here, with the arithmetic of the stored sums, equal to the last bit."""
    conditions, values = conditions_of(query)
    sql = queries_of("reading.sql")["ended_numbers"].format(conditions=conditions)
    return sums_of(connection.execute(sql.encode(), values))


def stored_sums(connection: Connection, query: HistoryQuery) -> Sums:
    """Adds up the stored sums over all shards."""
    ask = asker(connection)
    filters = list(query.tools) or None, [str(status) for status in query.statuses] or None
    sums: Sums = {}
    for tool, status, metric, count, total, largest in ask("rollup", *filters):
        entry = sums[tool, status, metric] = Sum()
        entry.count, entry.total, entry.largest = count, int(total), largest
    for tool, status, metric, bucket, count in ask("sketch", *filters):
        if (tool, status, metric) in sums:
            sums[tool, status, metric].buckets[bucket] = count
    return sums
