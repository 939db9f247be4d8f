"""Conditions of history queries, as named parts of queries with their values."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from joblens.model.cursor import Cursor
    from joblens.model.history import HistoryQuery

_HIGHEST = "\U0010ffff"

NamedCondition = tuple[str, tuple[Any, ...]]


def conditions_of(query: "HistoryQuery", pattern: Callable[[str], str]) -> dict[str, NamedCondition]:
    """Returns SQL conditions by subject. A list as value stands for any number of values."""
    found: dict[str, NamedCondition] = {}
    for name, values in (
        ("status", [str(status) for status in query.statuses]),
        ("tool", list(query.tools)),
        ("host", list(query.hosts)),
        ("finding", list(query.findings)),
    ):
        if values:
            found[name] = (f"where_{name}", (values,))
    for index, tag in enumerate(query.tags):
        found[f"tag {index}"] = ("where_tag", (tag,))
    if query.without_tag:
        found["without_tag"] = ("where_without_tag", (query.without_tag,))
    if query.names:
        found |= _of_names(query.names, pattern)
    for name, value in (
        ("name_contains", query.name_contains or None),
        ("since", query.since_us),
        ("until", query.until_us),
        ("user", query.user),
        ("external_id", query.external_id),
        ("run", query.run_uuid),
    ):
        if value is not None:
            found[name] = (f"where_{name}", (value,))
    if query.cluster_job is not None:
        found["cluster_job"] = ("where_cluster_job", cluster_job_texts(query.cluster_job))
    if not query.include_unfinished:
        found["ended"] = ("where_ended", ())
    return found


def cursor_of(query: "HistoryQuery") -> "Cursor | None":
    if query.after is None:
        return None
    from joblens.model.cursor import decode_cursor

    return decode_cursor(query.after, query.sort, ascending=query.ascending)


KEY_ALWAYS_KNOWN = ("started", "name")  # sort keys that every job has


def position_condition(
    key: str,
    cursor: "Cursor | None",
    *,
    is_known: bool,
    ascending: bool,
    mark: str,
    number: str = "job.id",
) -> tuple[str, tuple[Any, ...]] | None:
    """The part of the list behind the cursor, of jobs whose sort key is known, or of the others, which come
    last. Empty text: all of them. None: that part ends before the cursor."""
    sign = ">" if ascending else "<"
    if cursor is None:
        return "", ()
    if is_known:
        if cursor.key is None:
            return None
        return f"({key}, {number}) {sign} ({mark}, {mark})", (cursor.key, cursor.number)
    if cursor.key is None:
        return f"{number} {sign} {mark}", (cursor.number,)
    return "", ()


def cluster_job_texts(job_id: str) -> tuple[str, str]:
    """Returns the JSON fragments by which an attempt's document matches the id:
    alone, or before an array index.
    """
    quoted = msgspec.json.encode(job_id).decode()
    return f'"job_id":{quoted}', f'"job_id":{quoted[:-1]}_'


def _of_names(names: tuple[str, ...], pattern: Callable[[str], str]) -> dict[str, NamedCondition]:
    if len(names) > 1:
        return {"name": ("where_one_of_names", ([pattern(name) for name in names],))}
    prefix = _literal_start(names[0])
    found: dict[str, NamedCondition] = {}
    if names[0] != f"{prefix}*" or not prefix:
        found["name"] = ("where_name", (pattern(names[0]),))
    if prefix:
        found["name_between"] = ("where_name_between", (prefix, prefix + _HIGHEST))
    return found


def _literal_start(pattern: str) -> str:
    """Returns the part of a pattern before its first wildcard; only * and ? are wildcards."""
    return pattern.split("*", 1)[0].split("?", 1)[0]
