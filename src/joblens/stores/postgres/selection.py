"""Which jobs a question is about, and in which order: numbers only, the records are read afterwards."""

from typing import Any

from joblens.model.history import HistoryQuery, SortKey
from joblens.stores.postgres.connection import Connection
from joblens.stores.postgres.sql import queries_of
from joblens.stores.sql import history_conditions

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
    found = history_conditions.conditions_of(query, _like).values()
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
