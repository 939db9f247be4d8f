"""All or nothing."""

from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from joblens.stores.sqlite.sql import QUERIES


@contextmanager
def writing(connection: apsw.Connection) -> Iterator[None]:
    return _transaction(connection, "begin_write")


@contextmanager
def reading(connection: apsw.Connection) -> Iterator[None]:
    """One snapshot for several questions."""
    return _transaction(connection, "begin_read")


def _transaction(connection: apsw.Connection, begin: str) -> Iterator[None]:
    connection.execute(QUERIES[begin])
    try:
        yield
        connection.execute(QUERIES["commit"])
    except BaseException:
        if connection.in_transaction:  # SQLite has rolled back by itself after some errors
            connection.execute(QUERIES["rollback"])
        raise
