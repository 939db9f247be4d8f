"""Queries and rows that all SQL stores share.

Statistics are rollups, updated with each outcome: a million jobs are answered as fast as ten."""

from collections.abc import Callable
from typing import Any

# A list as parameter stands for any number of values.
Ask = Callable[..., list[tuple[Any, ...]]]


_MARK = "-- name: "


class Queries(dict[str, str]):
    """Queries by name. An unknown name raises KeyError."""

    @classmethod
    def parse(cls, text: str) -> "Queries":
        queries = cls()
        for part in text.split(_MARK)[1:]:
            name, _, body = part.partition("\n")
            lines = [line for line in body.splitlines() if not line.startswith("--")]
            queries[name.strip()] = "\n".join(lines).strip()
        return queries
