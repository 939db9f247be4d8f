"""Tickets in an SQLite file."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import apsw
import msgspec

from joblens.model.writes import Write
from joblens.stores.sqlite.sql import TICKET_QUERIES

_MOVES_TICKETS = frozenset(
    (
        "insert_ticket",
        "take_tickets",
        "renew_leases",
        "put_ticket_back",
        "put_begun_ticket_back",
        "put_lost_ticket_back",
        "delete_tickets",
        "release_followers",
    )
)


class SqliteTicketBook:
    """stores.ticket_book.TicketBook"""

    def __init__(self, connection: apsw.Connection, apply: Callable[[Sequence[Write]], None]) -> None:
        self._connection = connection
        self._apply = apply

    def ask(self, query: str, **values: Any) -> list[tuple[Any, ...]]:
        bound = {name: _parameter(value) for name, value in values.items()}
        with self._leaving_nothing(query):
            return self._connection.execute(TICKET_QUERIES[query], bound).fetchall()

    def ask_each(self, query: str, rows: Sequence[Mapping[str, Any]]) -> None:
        with self._leaving_nothing(query):
            self._connection.executemany(TICKET_QUERIES[query], rows)

    @contextmanager
    def _leaving_nothing(self, query: str) -> Iterator[None]:
        """Tickets hold secrets: a row that goes or moves is overwritten where it was. Not so for samples, of
        which there are many."""
        if query not in _MOVES_TICKETS:
            yield
            return
        self._connection.execute(TICKET_QUERIES["overwrite_what_goes"]).fetchall()
        try:
            yield
        finally:
            self._connection.execute(TICKET_QUERIES["leave_what_goes"]).fetchall()

    def write(self, writes: Sequence[Write]) -> None:
        self._apply(writes)

    def now_us(self) -> int:
        """That of the one host that may use the file."""
        return time.time_ns() // 1000


def _parameter(value: Any) -> Any:
    """Many values at once are read by json_each."""
    return msgspec.json.encode(value).decode() if isinstance(value, list) else value
