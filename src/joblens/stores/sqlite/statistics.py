"""Statistics over ended jobs in an SQLite store: from the sums that its writer keeps, or from the jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw
import msgspec
from msgspec.structs import replace

from joblens.stores.sql.batch import Sum, needs_jobs, statistics_of, sums_of
from joblens.stores.sqlite.sql import QUERIES
from joblens.stores.sqlite.writer import add_sums

if TYPE_CHECKING:
    from joblens.model.history import HistoryQuery, Statistics
    from joblens.stores.sql.batch import Sums


def rebuild(connection: apsw.Connection) -> None:
    connection.execute(QUERIES["clear_rollup"])
    connection.execute(QUERIES["clear_sketch"])
    add_sums(connection, sums_from_jobs(connection))


def sums_from_jobs(connection: apsw.Connection) -> Sums:
    rows = connection.execute(QUERIES["ended_numbers"].format(conditions=QUERIES["where_any"]))
    return sums_of(rows)


def stored_sums(connection: apsw.Connection, query: HistoryQuery) -> Sums:
    filters = (_json_or_none(query.tools), _json_or_none(query.statuses))
    sums: Sums = {}
    for tool, status, metric, count, total, largest in connection.execute(QUERIES["rollup"], filters):
        entry = sums[tool, status, metric] = Sum()
        entry.count, entry.total, entry.largest = count, total, largest
    for tool, status, metric, bucket, count in connection.execute(QUERIES["sketch"], filters):
        sums[tool, status, metric].buckets[bucket] = count
    return sums


def statistics(connection: apsw.Connection, query: HistoryQuery) -> Statistics:
    if query.without_tag and not connection.execute(QUERIES["count_tag_up_to"], (query.without_tag, 1)).get:
        query = replace(query, without_tag="")
    if not needs_jobs(query):
        return statistics_of(stored_sums(connection, query))
    from joblens.stores.sqlite.selection import conditions_of

    conditions, parameters = conditions_of(query)
    sql = QUERIES["ended_numbers"].format(conditions=conditions)
    return statistics_of(sums_of(connection.execute(sql, parameters)))


def _json_or_none(values: tuple[str, ...]) -> str | None:
    return msgspec.json.encode(values).decode() if values else None
