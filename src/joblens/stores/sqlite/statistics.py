"""Statistics over ended jobs in an SQLite store: sums, updated with each outcome."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import apsw
import msgspec
from msgspec.structs import replace

from joblens.stores.sql.batch import Sum, largest_of, needs_jobs, statistics_of, sums_of
from joblens.stores.sqlite.sql import QUERIES

if TYPE_CHECKING:
    from joblens.model.history import HistoryQuery, Statistics
    from joblens.stores.sql.batch import EndedJob, Sums


def record_changes(
    connection: apsw.Connection, added: Iterable[EndedJob], removed: Iterable[EndedJob]
) -> None:
    """Adds to and subtracts from the stored sums. Call inside the transaction, after the jobs' own rows."""
    removed = list(removed)
    _store(connection, sums_of(added, removed))
    for tool, status in {(tool, status) for tool, status, *_ in removed}:
        connection.execute(QUERIES["drop_empty_rollup"], (tool, status))
        connection.execute(QUERIES["drop_empty_sketch"], (tool, status))
    connection.executemany(QUERIES["refresh_largest"], largest_of(removed))


def rebuild(connection: apsw.Connection) -> None:
    connection.execute(QUERIES["clear_rollup"])
    connection.execute(QUERIES["clear_sketch"])
    _store(connection, sums_from_jobs(connection))


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
