"""Statistics over ended jobs, and the selection of jobs, in an SQLite store.

A filter that few jobs pass is looked up through its own index and the rest sorted; otherwise the index
of the order is walked until enough have passed. Which one is settled by counting, up to a bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import apsw
import msgspec
from msgspec.structs import replace

from joblens.model.history import SortKey
from joblens.model.jobs.job import Status
from joblens.stores.sql import queries
from joblens.stores.sql.batch import Sum, needs_jobs, statistics_of, sums_of
from joblens.stores.sqlite.sql import QUERIES

if TYPE_CHECKING:
    from joblens.model.history import HistoryQuery, Statistics
    from joblens.stores.sql.batch import EndedJob, Sums

_FEW = 4000
_NO_LIMIT = -1
_ALL_STATUSES = tuple(Status)

_SORT_KEYS = {
    SortKey.STARTED: ("job.began_at_us", "job_by_began"),
    SortKey.ENDED: ("job.ended_at_us", "job_by_ended"),
    SortKey.DURATION: ("job.duration_us", "job_by_duration"),
    SortKey.CPU: ("job.cpu_usec", "job_by_cpu"),
    SortKey.MEMORY: ("job.memory_bytes", "job_by_memory"),
    SortKey.NAME: ("job.name", "job_by_name"),
}
_ALWAYS_KNOWN = (SortKey.STARTED, SortKey.NAME)

Condition = tuple[str, tuple[str | int, ...]]


def job_numbers(connection: apsw.Connection, query: HistoryQuery) -> list[int]:
    """Jobs of which the sort key is unknown come last, whichever way the others are sorted."""
    limit = _NO_LIMIT if query.limit is None else max(0, query.limit)
    driver = _fewest(connection, query)
    if query.sort in _ALWAYS_KNOWN:
        return _select(connection, query, driver, [], limit)
    key, _ = _SORT_KEYS[query.sort]
    known: Condition = (QUERIES["where_key_known"].format(key=key), ())
    unknown: Condition = (QUERIES["where_key_unknown"].format(key=key), ())
    found = _select(connection, query, driver, [known], limit)
    if limit == _NO_LIMIT or len(found) < limit:
        rest = _NO_LIMIT if limit == _NO_LIMIT else limit - len(found)
        found += _select(connection, query, driver, [unknown], rest)
    return found


def conditions_of(query: HistoryQuery) -> Condition:
    """For reading all that match, in any order."""
    conditions = _conditions(query)
    conditions.update(
        {key: (QUERIES["where_in_tag"], conditions[key][1]) for key in conditions if key.startswith("tag ")}
    )
    return _joined(list(conditions.values()))


def _select(
    connection: apsw.Connection, query: HistoryQuery, driver: str | None, more: list[Condition], limit: int
) -> list[int]:
    conditions = _conditions(query)
    key, index = _SORT_KEYS[query.sort]
    leading: tuple[str | int, ...] = ()
    name = "history"
    if driver == "tag":
        name, leading = "history_of_tag", (query.tags[0],)
    elif driver is not None:
        index = driver
    if index == "job_by_status_and_tool" and "status" not in conditions:
        # The index begins with the status: naming all of them opens the rest of it.
        conditions["status"] = (QUERIES["where_status"], (_json(_ALL_STATUSES),))
    text, parameters = _joined([*conditions.values(), *more])
    sql = QUERIES[name].format(
        index=index, conditions=text, key=key, direction="ASC" if query.ascending else "DESC"
    )
    rows = connection.execute(sql, (*leading, *parameters, limit))
    return [number for (number,) in rows]


def _fewest(connection: apsw.Connection, query: HistoryQuery) -> str | None:
    """The index of the filter that the fewest jobs pass, when they are few."""
    conditions, fewest = _conditions(query), _FEW
    # The jobs of one run lie together, and those before and after it in time may be very many.
    best = None if query.run_uuid is None else "job_of_run"
    for index, names in (
        ("job_by_status_and_tool", ("status", "tool")),
        ("job_by_name", ("name", "name_between")),
        ("job_by_began", ("since", "until")),
        ("job_by_user", ("user",)),
        ("job_by_external_id", ("external_id",)),
        ("job_of_run", ("run",)),
    ):
        used = [conditions[name] for name in names if name in conditions]
        if not used:
            continue
        if names[0] == "status" and "status" not in conditions:
            used.append((QUERIES["where_status"], (_json(_ALL_STATUSES),)))
        text, parameters = _joined(used)
        sql = QUERIES["count_up_to"].format(index=index, conditions=text)
        count = _count(connection, sql, (*parameters, fewest))
        if count < fewest:
            best, fewest = index, count
    if query.tags and _count(connection, QUERIES["count_tag_up_to"], (query.tags[0], fewest)) < fewest:
        best = "tag"
    return best


def _count(connection: apsw.Connection, sql: str, parameters: tuple[str | int, ...]) -> int:
    count: int = connection.execute(sql, parameters).get
    return count


def _conditions(query: HistoryQuery) -> dict[str, Condition]:
    found = queries.conditions_of(query, _glob)
    return {key: (QUERIES[name], tuple(map(_value, values))) for key, (name, values) in found.items()}


def _joined(conditions: list[Condition]) -> Condition:
    text = " AND ".join(part for part, _ in conditions) or QUERIES["where_any"]
    return text, tuple(parameter for _, parameters in conditions for parameter in parameters)


def _glob(pattern: str) -> str:
    return pattern.replace("[", "[[]")  # only * and ? are special


def _value(value: Any) -> str | int:
    """Many values at once are read by json_each."""
    return _json(value) if isinstance(value, list) else value


def _json(values: Sequence[str]) -> str:
    return msgspec.json.encode(values).decode()


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
        entry = sums[tool, status, metric] = Sum()
        entry.count, entry.total, entry.largest = count, total, largest
    for tool, status, metric, bucket, count in connection.execute(QUERIES["sketch"], wanted):
        sums[tool, status, metric].buckets[bucket] = count
    return sums


def statistics(connection: apsw.Connection, query: HistoryQuery) -> Statistics:
    if query.without_tag and not connection.execute(QUERIES["count_tag_up_to"], (query.without_tag, 1)).get:
        query = replace(query, without_tag="")
    if not needs_jobs(query):
        return statistics_of(stored_sums(connection, query))
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
