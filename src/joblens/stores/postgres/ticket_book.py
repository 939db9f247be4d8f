"""Tickets in a PostgreSQL database."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from joblens.model.writes import Write
from joblens.stores.postgres.connection import Connection
from joblens.stores.postgres.sql import queries_of

_QUERIES = {name: text.encode() for name, text in queries_of("ticket_queries.sql").items()}
# Those that find something are waited for; others are sent together with what comes after them.
_FINDING = {
    name for name, text in _QUERIES.items() if text.startswith((b"SELECT", b"WITH")) or b"RETURNING" in text
}


class PostgresTicketBook:
    """stores.ticket_book.TicketBook"""

    def __init__(self, connection: Connection, apply: Callable[[Sequence[Write]], None]) -> None:
        self._connection = connection
        self._apply = apply
        self._clock: tuple[int, int] | None = None  # the server's in µs, ours in ns, when it was asked

    def ask(self, query: str, **values: Any) -> list[tuple[Any, ...]]:
        cursor = self._connection.execute(_QUERIES[query], values, binary=True)
        return cursor.fetchall() if query in _FINDING else []

    def ask_each(self, query: str, rows: Sequence[Mapping[str, Any]]) -> None:
        self._connection.cursor().executemany(_QUERIES[query], rows)

    def write(self, writes: Sequence[Write]) -> None:
        self._apply(writes)

    def now_us(self) -> int:
        """The server is asked once in a transaction."""
        if self._clock is None:
            ((server_us,),) = self.ask("now_us")
            self._clock = server_us, time.monotonic_ns()
        server_us, asked_ns = self._clock
        return server_us + (time.monotonic_ns() - asked_ns) // 1000
