"""Questions by their names, to an SQLite file."""

from typing import Any

import apsw
import msgspec

from joblens.stores.sql.asking import Ask
from joblens.stores.sqlite.sql import QUERIES


def asker(connection: apsw.Connection) -> Ask:
    def ask(query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return connection.execute(QUERIES[query], tuple(map(_parameter, parameters))).fetchall()

    return ask


def _parameter(value: Any) -> Any:
    """Many values at once are read by json_each."""
    return msgspec.json.encode(value).decode() if isinstance(value, list) else value
