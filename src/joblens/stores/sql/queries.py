"""Queries by name: read from .sql files, asked of any database, and the conditions of a history query."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from joblens.model.history import HistoryQuery

# A list as parameter is for a query that takes any number of values at once.
Ask = Callable[..., list[tuple[Any, ...]]]


_MARK = "-- name: "


class Queries(dict[str, str]):
    """By name. A wrong name is a KeyError where it is asked for."""

    @classmethod
    def parse(cls, text: str) -> "Queries":
        queries = cls()
        for part in text.split(_MARK)[1:]:
            name, _, body = part.partition("\n")
            lines = [line for line in body.splitlines() if not line.startswith("--")]
            queries[name.strip()] = "\n".join(lines).strip()
        return queries


_HIGHEST = "\U0010ffff"

NamedCondition = tuple[str, tuple[Any, ...]]


def conditions_of(query: "HistoryQuery", pattern: Callable[[str], str]) -> dict[str, NamedCondition]:
    """By what they are about. A list among the values is for a condition that takes any number of them."""
    found: dict[str, NamedCondition] = {}
    if query.statuses:
        found["status"] = ("where_status", ([str(status) for status in query.statuses],))
    if query.tools:
        found["tool"] = ("where_tool", (list(query.tools),))
    for place, tag in enumerate(query.tags):
        found[f"tag {place}"] = ("where_tag", (tag,))
    if query.without_tag:
        found["without_tag"] = ("where_without_tag", (query.without_tag,))
    if query.names:
        found |= _of_names(query.names, pattern)
    if query.since_us is not None:
        found["since"] = ("where_since", (query.since_us,))
    if query.until_us is not None:
        found["until"] = ("where_until", (query.until_us,))
    for name, value in (
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


def cluster_job_texts(job_id: str) -> tuple[str, str]:
    """Returns how the id stands in the document of an attempt: alone, and before the index in an array."""
    quoted = msgspec.json.encode(job_id).decode()
    return f'"job_id":{quoted}', f'"job_id":{quoted[:-1]}_'


def _of_names(names: tuple[str, ...], pattern: Callable[[str], str]) -> dict[str, NamedCondition]:
    if len(names) > 1:
        return {"name": ("where_one_of_names", ([pattern(name) for name in names],))}
    found: dict[str, NamedCondition] = {"name": ("where_name", (pattern(names[0]),))}
    if prefix := _literal_start(names[0]):
        found["name_between"] = ("where_name_between", (prefix, prefix + _HIGHEST))
    return found


def _literal_start(pattern: str) -> str:
    """Only * and ? are special."""
    return pattern.split("*", 1)[0].split("?", 1)[0]
