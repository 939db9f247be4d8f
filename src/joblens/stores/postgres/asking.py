"""Questions by their names, to a PostgreSQL server."""

from typing import Any

from joblens.stores.postgres.connection import Connection
from joblens.stores.postgres.sql import queries_of
from joblens.stores.sql.asking import Ask


def asker(connection: Connection, file: str = "reading.sql") -> Ask:
    queries = queries_of(file)

    def ask(query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return connection.execute(queries[query].encode(), parameters or None, binary=True).fetchall()

    return ask
