"""Walks: lists of jobs by time, read from indexes that have one filter and the time. Pure.

Each value of a filter is one walk, which ends when enough jobs have passed the other filters; walks are then
merged."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Status
from joblens.stores.sql import Queries
from joblens.stores.sql.queries import cursor_of, position_condition

_MOST = 100  # walks of one list
_NEWEST = 3000  # jobs that are searched first for a part of a name

Condition = tuple[str, tuple[Any, ...]]


class Driver(NamedTuple):
    """A filter that is walked: its query, its index in an SQLite store, and the values of each walk."""

    covers: tuple[str, ...]  # conditions that it replaces
    query: str
    index_name: str
    conditions: tuple[str, ...]
    values: Sequence[tuple[str, ...]]


EVERYTHING = Driver((), "walk", "job_by_began", (), [()])
_COLUMNS = {
    "walk": ("job.began_at_us", "job.id"),
    "walk_tag": ("driving.began_at_us", "driving.job_id"),
    "walk_finding": ("driving.began_at_us", "driving.job_id"),
}


def drivers_of(query: HistoryQuery) -> Iterator[Driver]:
    """In the order in which they are taken where many jobs pass each of them."""
    statuses = tuple(dict.fromkeys(str(status) for status in query.statuses))
    if query.run_uuid is not None:
        yield Driver(("run",), "walk", "job_of_run_by_began", ("where_run",), [(query.run_uuid,)])
    for number, tag in enumerate(query.tags):
        yield Driver((f"tag {number}",), "walk_tag", "tag_by_began", (), [(tag,)])
    codes = [(code,) for code in dict.fromkeys(query.findings)]
    tools = [
        (status, tool)
        for status in statuses or tuple(str(status) for status in Status)
        for tool in dict.fromkeys(query.tools)
    ]
    hosts = [(host,) for host in dict.fromkeys(query.hosts)]
    both = ("where_this_status", "where_this_tool")
    for driver in (
        Driver(("finding",), "walk_finding", "", (), codes),
        Driver(("status", "tool"), "walk", "job_by_status_and_tool", both, tools),
        Driver(("host",), "walk", "job_by_host", ("where_this_host",), hosts),
    ):
        if 0 < len(driver.values) <= _MOST:
            yield driver
    if query.user is not None:
        yield Driver(("user",), "walk", "job_by_user", ("where_user",), [(query.user,)])
    if statuses and not query.tools:
        each = [(status,) for status in statuses]
        yield Driver(("status",), "walk", "job_by_status", ("where_this_status",), each)


def columns_of(driver: Driver) -> tuple[str, str]:
    """Beginning and number of the job, where they are read from."""
    return _COLUMNS[driver.query]


def behind(query: HistoryQuery, driver: Driver, mark: str, began: str = "") -> Condition:
    usual, number = columns_of(driver)
    began = began or usual
    found = position_condition(
        began, cursor_of(query), is_known=True, ascending=query.ascending, mark=mark, number=number
    )
    assert found is not None  # every job has a beginning
    return found


def walk(
    texts: Queries,
    query: HistoryQuery,
    driver: Driver,
    others: Mapping[str, Condition],
    *,
    mark: str,
    source: str,
    began: str,
    limit: int | None,
) -> tuple[str, list[Any]]:
    """Statement and values. `others`: all conditions of the query, by name. `began`: as the index has it."""
    _, number = columns_of(driver)
    direction = direction_of(query)
    own = [(texts[name], ()) for name in driver.conditions]
    kept = [each for name, each in others.items() if name not in driver.covers]
    text, parameters = joined(texts, [*own, *kept, behind(query, driver, mark, began)])
    one = texts[driver.query].format(
        source=source, conditions=text, began=began, number=number, direction=direction
    )
    walks = f" {texts['and_walk']} ".join([one] * len(driver.values))
    values = [value for each in driver.values for value in (*each, *parameters, limit)]
    return texts["merged_walks"].format(walks=walks, direction=direction), [*values, limit]


def among_newest(
    texts: Queries,
    query: HistoryQuery,
    others: Mapping[str, Condition],
    *,
    mark: str,
    limit: int | None,
) -> tuple[str, list[Any]]:
    """The same over all jobs, but reads only the newest, matching or not."""
    direction = direction_of(query)
    text, parameters = joined(texts, [behind(query, EVERYTHING, mark)])
    newest = texts["newest"].format(conditions=text, direction=direction)
    conditions, values = joined(texts, list(others.values()))
    sql = texts["walk"].format(
        source=f"({newest}) AS job",
        conditions=conditions,
        began="job.began_at_us",
        number="job.id",
        direction=direction,
    )
    return sql, [*parameters, _NEWEST, *values, limit]


def direction_of(query: HistoryQuery) -> str:
    return "ASC" if query.ascending else "DESC"


def joined(texts: Queries, conditions: Sequence[Condition]) -> Condition:
    text = " AND ".join(part for part, _ in conditions if part) or texts["where_any"]
    return text, tuple(parameter for _, parameters in conditions for parameter in parameters)
