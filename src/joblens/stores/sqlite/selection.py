"""Selection of jobs in an SQLite store.

Newest first, most filters have an index in that order, which is walked (stores.sql.walks): of several filters
the one that the fewest jobs pass. Names have no such index: they are searched among the newest jobs, then
collected and sorted. For other orders, a filter that few jobs pass is looked up, otherwise the index of the
order is walked. Counting, up to a bound, decides.
"""

from collections.abc import Sequence
from typing import Any

import apsw
import msgspec

from joblens.model.history import HistoryQuery, SortKey
from joblens.model.jobs.job import Status
from joblens.stores.sql import queries
from joblens.stores.sql.queries import KEY_ALWAYS_KNOWN, cursor_of, position_condition
from joblens.stores.sql.record_queries import Position
from joblens.stores.sql.walks import (
    EVERYTHING,
    Condition,
    Driver,
    among_newest,
    behind,
    columns_of,
    drivers_of,
    joined,
    walk,
)
from joblens.stores.sqlite.sql import QUERIES

_FEW = 4000  # are looked up one by one and sorted
_SORTABLE = 150_000  # of an index that has all that is needed
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


def job_positions(connection: apsw.Connection, query: HistoryQuery) -> list[Position]:
    """Selects jobs. Jobs whose sort key is unknown come last in either direction."""
    limit = _NO_LIMIT if query.limit is None else max(0, query.limit)
    if query.sort is SortKey.STARTED:
        return _by_time(connection, query, limit)
    cursor = cursor_of(query)
    driver = _fewest(connection, query)
    key, _ = _SORT_KEYS[query.sort]
    if query.sort in KEY_ALWAYS_KNOWN:
        part = position_condition(key, cursor, is_known=True, ascending=query.ascending, mark="?")
        return [] if part is None else _select(connection, query, driver, [part], limit)
    found: list[Position] = []
    for name, is_known in (("where_key_known", True), ("where_key_unknown", False)):
        part = position_condition(key, cursor, is_known=is_known, ascending=query.ascending, mark="?")
        if part is not None and (limit == _NO_LIMIT or len(found) < limit):
            rest = _NO_LIMIT if limit == _NO_LIMIT else limit - len(found)
            more: list[Condition] = [(QUERIES[name].format(key=key), ()), part]
            found += _select(connection, query, driver, more, rest)
    return found


def count_jobs(connection: apsw.Connection, query: HistoryQuery) -> int:
    conditions, parameters = conditions_of(query)
    return _count(connection, QUERIES["count_jobs"].format(conditions=conditions), parameters)


def conditions_of(query: HistoryQuery) -> Condition:
    """Returns conditions for reading all matches, in any order."""
    conditions = _conditions(query)
    conditions.update(
        {key: (QUERIES["where_in_tag"], conditions[key][1]) for key in conditions if key.startswith("tag ")}
    )
    return _joined(list(conditions.values()))


# ---- newest or oldest first ------------------------------------------------------------------------------


def _by_time(connection: apsw.Connection, query: HistoryQuery, limit: int) -> list[Position]:
    conditions, drivers = _conditions(query), list(drivers_of(query))
    if "external_id" in conditions:
        return _sorted(connection, query, "job_by_external_id", limit)
    has_names = bool({"name", "name_between", "name_contains"} & conditions.keys())
    if not drivers:
        if has_names:
            return _named(connection, query, limit)
        return _walked(connection, query, EVERYTHING, limit)
    if len(drivers) == 1 and not has_names:
        return _walked(connection, query, drivers[0], limit)
    best, fewest, is_by_name = drivers[0], _SORTABLE, False
    if "name_between" in conditions:
        count = _count_up_to(connection, "job_by_name", [conditions["name_between"]], fewest)
        is_by_name, fewest = count < fewest, count
    for driver in drivers:
        count = _count_walks(connection, driver, fewest)
        if count < fewest:
            best, fewest, is_by_name = driver, count, False
    if is_by_name:
        return _sorted(connection, query, "job_by_name", limit)
    return _walked(connection, query, best, limit)


def _named(connection: apsw.Connection, query: HistoryQuery, limit: int) -> list[Position]:
    """Names that are not among the newest jobs are few, or of old jobs: then all that match are sorted."""
    if limit != _NO_LIMIT:
        others = _conditions(query)
        sql, values = among_newest(QUERIES, query, others, mark="?", limit=limit)
        found: list[Position] = [(number, value) for number, value in connection.execute(sql, values)]
        if len(found) >= limit:
            return found
    return _sorted(connection, query, "job_by_name", limit)


def _walked(connection: apsw.Connection, query: HistoryQuery, driver: Driver, limit: int) -> list[Position]:
    began, _ = columns_of(driver)
    source = f"job INDEXED BY {driver.index_name}"
    others = _conditions(query, began)
    sql, values = walk(QUERIES, query, driver, others, mark="?", source=source, began=began, limit=limit)
    return [(number, value) for number, value in connection.execute(sql, values)]


def _sorted(connection: apsw.Connection, query: HistoryQuery, index: str, limit: int) -> list[Position]:
    """All that match, read by an index that has what is needed of most of them, and sorted."""
    return _select(connection, query, index, [behind(query, EVERYTHING, "?")], limit)


def _count_walks(connection: apsw.Connection, driver: Driver, most: int) -> int:
    total = 0
    for values in driver.values:
        if total >= most:
            break
        if driver.query == "walk":
            own: list[Condition] = [
                (QUERIES[name], (value,)) for name, value in zip(driver.conditions, values, strict=True)
            ]
            total += _count_up_to(connection, driver.index_name, own, most - total)
        else:
            sql = QUERIES["count_tag_up_to" if driver.query == "walk_tag" else "count_finding_up_to"]
            total += _count(connection, sql, (*values, most - total))
    return total


def _count_up_to(connection: apsw.Connection, index: str, conditions: list[Condition], most: int) -> int:
    text, parameters = _joined(conditions)
    return _count(
        connection, QUERIES["count_up_to"].format(index=index, conditions=text), (*parameters, most)
    )


# ---- other orders ----------------------------------------------------------------------------------------


def _select(
    connection: apsw.Connection, query: HistoryQuery, driver: str | None, more: list[Condition], limit: int
) -> list[Position]:
    conditions = _conditions(query)
    key, index = _SORT_KEYS[query.sort]
    leading: tuple[str | int, ...] = ()
    name = "history"
    if driver == "tag":
        name, leading = "history_of_tag", (query.tags[0],)
    elif driver is not None:
        index = driver
    if index == "job_by_status_and_tool" and "status" not in conditions:
        # The index starts with the status: listing all statuses makes its other columns usable.
        conditions["status"] = (QUERIES["where_status"], (_json(_ALL_STATUSES),))
    text, parameters = _joined([*conditions.values(), *more])
    sql = QUERIES[name].format(
        index=index, conditions=text, key=key, direction="ASC" if query.ascending else "DESC"
    )
    rows = connection.execute(sql, (*leading, *parameters, limit))
    return [(number, value) for number, value in rows]


def _fewest(connection: apsw.Connection, query: HistoryQuery) -> str | None:
    """Returns the index of the most selective filter, if it matches few jobs."""
    conditions, fewest = _conditions(query), _FEW
    # The jobs of a run are adjacent, while a time range may hold very many.
    best = None if query.run_uuid is None else "job_of_run"
    for index, names in (
        ("job_by_status_and_tool", ("status", "tool")),
        ("job_by_name", ("name_between", "name")),
        ("job_by_began", ("since", "until")),
        ("job_by_user", ("user",)),
        ("job_by_host", ("host",)),
        ("job_by_external_id", ("external_id",)),
        ("job_of_run", ("run",)),
    ):
        used = [conditions[name] for name in names if name in conditions]
        if not used:
            continue
        if names[0] == "status" and "status" not in conditions:
            used.append((QUERIES["where_status"], (_json(_ALL_STATUSES),)))
        count = _count_up_to(connection, index, used, fewest)
        if count < fewest:
            best, fewest = index, count
    if query.tags and _count(connection, QUERIES["count_tag_up_to"], (query.tags[0], fewest)) < fewest:
        best = "tag"
    return best


def _count(connection: apsw.Connection, sql: str, parameters: tuple[str | int, ...]) -> int:
    count: int = connection.execute(sql, parameters).get
    return count


def _conditions(query: HistoryQuery, began: str = "job.began_at_us") -> dict[str, Condition]:
    found = queries.conditions_of(query, _glob)
    return {
        key: (QUERIES[name].format(began=began), tuple(map(_value, values)))
        for key, (name, values) in found.items()
    }


def _joined(conditions: Sequence[Condition]) -> Condition:
    return joined(QUERIES, conditions)


def _glob(pattern: str) -> str:
    return pattern.replace("[", "[[]")  # only * and ? are wildcards


def _value(value: Any) -> str | int:
    """Encodes a list for json_each."""
    return _json(value) if isinstance(value, list) else value


def _json(values: Sequence[str]) -> str:
    return msgspec.json.encode(values).decode()
