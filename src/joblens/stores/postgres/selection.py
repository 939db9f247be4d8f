"""Selection of jobs in a PostgreSQL store.

Newest first, a filter with an index in that order is walked (stores.sql.walks): left to itself the planner
walks all jobs as soon as it believes that many match, wherever they are. Several filters are its choice.
"""

from joblens.model.history import HistoryQuery, SortKey
from joblens.stores.postgres.connection import Connection
from joblens.stores.postgres.sql import queries_of
from joblens.stores.sql import Queries, queries
from joblens.stores.sql.queries import KEY_ALWAYS_KNOWN, cursor_of, position_condition
from joblens.stores.sql.record_queries import Position
from joblens.stores.sql.walks import (
    EVERYTHING,
    Condition,
    Driver,
    among_newest,
    behind,
    columns_of,
    direction_of,
    drivers_of,
    joined,
    walk,
)

_BEGAN = "(job.began_at_us + 0)"  # as the indexes of filters have it (migration 5)
_SORT_KEYS = {
    SortKey.STARTED: "job.began_at_us",
    SortKey.ENDED: "job.ended_at_us",
    SortKey.DURATION: "job.duration_us",
    SortKey.CPU: "job.cpu_usec",
    SortKey.MEMORY: "job.memory_bytes",
    SortKey.NAME: "job.name",
}
_LIKE = str.maketrans({"\\": "\\\\", "%": "\\%", "_": "\\_", "*": "%", "?": "_"})
_OF_NAMES = frozenset(("name", "name_between", "name_contains"))


def job_positions(connection: Connection, query: HistoryQuery) -> list[Position]:
    """Returns jobs in order; those with an unknown sort key come last in either direction, from a query of
    their own, because no index has both in that order."""
    limit = None if query.limit is None else max(0, query.limit)
    if query.sort is SortKey.STARTED:
        found = _by_time(connection, query, limit)
        if found is not None:
            return found
    key, cursor, texts = _SORT_KEYS[query.sort], cursor_of(query), _texts()
    if query.sort in KEY_ALWAYS_KNOWN:
        part = position_condition(key, cursor, is_known=True, ascending=query.ascending, mark="%s")
        return [] if part is None else _select(connection, query, [part], limit)
    found = []
    for name, is_known in (("where_key_known", True), ("where_key_unknown", False)):
        part = position_condition(key, cursor, is_known=is_known, ascending=query.ascending, mark="%s")
        if part is not None and (limit is None or len(found) < limit):
            rest = None if limit is None else limit - len(found)
            found += _select(connection, query, [(texts[name].format(key=key), ()), part], rest)
    return found


def count_jobs(connection: Connection, query: HistoryQuery) -> int:
    conditions, values = conditions_of(query)
    sql = _texts()["count_jobs"].format(conditions=conditions)
    ((count,),) = connection.execute(sql.encode(), values)
    return int(count)


def conditions_of(query: HistoryQuery) -> Condition:
    return joined(_texts(), list(_conditions(query).values()))


def _by_time(connection: Connection, query: HistoryQuery, limit: int | None) -> list[Position] | None:
    """None: the planner may choose."""
    if limit is None:
        return None
    drivers, names = list(drivers_of(query)), _OF_NAMES & _conditions(query).keys()
    if len(drivers) == 1 and not names:
        return _walked(connection, query, drivers[0], limit)
    if not drivers and names:
        return _named(connection, query, limit)
    return None


def _walked(connection: Connection, query: HistoryQuery, driver: Driver, limit: int) -> list[Position]:
    began = _BEGAN if driver.query == "walk" else columns_of(driver)[0]
    others = _conditions(query, began)
    source = "joblens.job AS job"
    sql, values = walk(_texts(), query, driver, others, mark="%s", source=source, began=began, limit=limit)
    return _rows(connection, sql, values)


def _named(connection: Connection, query: HistoryQuery, limit: int) -> list[Position] | None:
    """Names that are not among the newest jobs are few, or of old jobs: then all that match are sorted."""
    texts, conditions = _texts(), _conditions(query)
    sql, values = among_newest(texts, query, conditions, mark="%s", limit=limit)
    found = _rows(connection, sql, values)
    if len(found) >= limit:
        return found
    named, values_of_names = joined(texts, list(conditions.values()))
    part, values_behind = behind(query, EVERYTHING, "%s")
    sql = texts["collected"].format(
        named=named,
        conditions=part.replace("job.", "named.") or texts["where_any"],
        direction=direction_of(query),
    )
    return _rows(connection, sql, [*values_of_names, *values_behind, limit])


def _select(
    connection: Connection, query: HistoryQuery, more: list[Condition], limit: int | None
) -> list[Position]:
    texts = _texts()
    conditions, values = joined(texts, [*_conditions(query).values(), *more])
    sql = texts["history"].format(
        conditions=conditions, key=_SORT_KEYS[query.sort], direction=direction_of(query)
    )
    return _rows(connection, sql, [*values, limit])


def _rows(connection: Connection, sql: str, values: list[object]) -> list[Position]:
    return [(number, value) for number, value in connection.execute(sql.encode(), values)]


def _conditions(query: HistoryQuery, began: str = "job.began_at_us") -> dict[str, Condition]:
    texts = _texts()
    found = queries.conditions_of(query, _like)
    return {key: (texts[name].format(began=began), values) for key, (name, values) in found.items()}


def _texts() -> Queries:
    return queries_of("reading.sql")


def _like(pattern: str) -> str:
    """Only * and ? are special to those who ask."""
    return pattern.translate(_LIKE)
