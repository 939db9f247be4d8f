"""Selection of jobs in an SQLite store.

A filter that few jobs pass is looked up through its own index and the rest sorted; otherwise the index
of the order is walked until enough have passed. Counting, up to a bound, decides between the two.
"""

from collections.abc import Sequence
from typing import Any

import apsw
import msgspec

from joblens.model.history import HistoryQuery, SortKey
from joblens.model.jobs.job import Status
from joblens.stores.sql import queries
from joblens.stores.sqlite.sql import QUERIES

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
