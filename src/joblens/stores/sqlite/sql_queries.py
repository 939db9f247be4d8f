"""Queries in SQL by people: on a connection of their own that can only read, and only views.

The name of a view is no proof of who reads a table: a query can give the same name to a part of itself. So
each view reads through another one with a secret name, and only that one may read tables."""

import os
import re
import time
from collections.abc import Callable
from typing import Any

import apsw

from joblens.model.errors import InputError, StoreError
from joblens.model.sql import QUERY_HINT, VIEWS, SqlAnswer, SqlLimits
from joblens.stores.sql import Queries
from joblens.stores.sqlite.opening import open_connection
from joblens.stores.sqlite.sql import QUERIES, read_text, store_errors

_STEPS = 5000  # of SQLite between two readings of the clock
_VALUE_BYTES = 16 << 20
_TEXT_BYTES = 200_000
_CACHE_KIB = 32 << 10
_FORBIDDEN = frozenset(
    ("load_extension", "sqlite_compileoption_get", "sqlite_compileoption_used", "fts3_tokenizer")
)
_OWN_TABLES = frozenset(("json_each", "json_tree", "generate_series"))
_RUNS = frozenset((apsw.SQLITE_SELECT, apsw.SQLITE_RECURSIVE))


def answer(path: str, text: str, limits: SqlLimits, only_user: str | None) -> SqlAnswer:
    with store_errors(path):
        connection = open_connection(path, read_only=True, busy_timeout_s=limits.seconds, warn=_no_warning)
    try:
        _make_views(connection, text, only_user)
        return _asked(connection, text, limits, time.monotonic() + limits.seconds)
    finally:
        connection.close()


def _no_warning(message: str) -> None:
    """Nothing that a reader has to know."""


def _make_views(connection: apsw.Connection, text: str, only_user: str | None) -> None:
    hidden = f"joblens_{os.urandom(12).hex()}_"
    quoted = "" if only_user is None else only_user.replace("'", "''")
    mine = {
        name: "TRUE" if only_user is None else f"{table}.user = '{quoted}'"
        for name, table in (
            ("mine", "job"),
            ("mine_of_workflow", "workflow"),
            ("mine_of_tombstone", "tombstone"),
        )
    }
    connection.execute(f"PRAGMA temp_store = FILE; PRAGMA cache_size = -{_CACHE_KIB}")
    for name, view in Queries.parse(read_text("views.sql")).items():
        connection.execute(f"CREATE TEMP VIEW {hidden}{name} AS {view.format(**mine)}")
        connection.execute(f"CREATE TEMP VIEW {name} AS SELECT * FROM {hidden}{name}")  # noqa: S608 - our names
    connection.execute("PRAGMA query_only = ON")
    connection.limit(apsw.SQLITE_LIMIT_LENGTH, _VALUE_BYTES)
    connection.limit(apsw.SQLITE_LIMIT_SQL_LENGTH, _TEXT_BYTES)
    connection.limit(apsw.SQLITE_LIMIT_ATTACHED, 0)
    tables = {str(name) for (name,) in connection.execute(QUERIES["names_of_tables"])}
    connection.authorizer = _authorizer(hidden, text, tables)


def _authorizer(hidden: str, text: str, tables: set[str]) -> Callable[..., int]:
    """`tables`: of the store; any other name is one that the query gives to a part of itself."""
    words = frozenset(re.findall(r"\w+", text.lower()))
    named = {name for name in tables if name.lower() in words}

    def allowed(action: int, first: str | None, second: str | None, _: str | None, view: str | None) -> int:
        if action in _RUNS:
            return apsw.SQLITE_OK
        if action == apsw.SQLITE_FUNCTION:
            return apsw.SQLITE_DENY if second in _FORBIDDEN else apsw.SQLITE_OK
        if action == apsw.SQLITE_READ and first is not None:
            is_view = first in VIEWS or first in _OWN_TABLES or first.startswith(hidden)
            if is_view or (view is not None and view.startswith(hidden)):
                return apsw.SQLITE_OK
            # Of a table of which a view uses no column SQLite does not say which view it is; the query itself
            # does not name it then.
            if not second and view is None and first not in named and not first.startswith("sqlite_"):
                return apsw.SQLITE_OK
        return apsw.SQLITE_DENY

    return allowed


def _asked(connection: apsw.Connection, text: str, limits: SqlLimits, until_s: float) -> SqlAnswer:
    columns: list[str] = []

    def note_columns(cursor: apsw.Cursor, _sql: str, _bindings: object) -> bool:
        if columns:
            return False  # a text that closes the bracket around it can have another statement behind it
        columns[:] = [name for name, *_ in cursor.get_description()]
        return True

    connection.set_progress_handler(lambda: time.monotonic() > until_s, _STEPS)
    cursor = connection.cursor()
    cursor.exec_trace = note_columns
    rows: list[tuple[Any, ...]] = []
    size = 0
    is_truncated = False
    try:
        # As part of another statement it can only be a query.
        limited = QUERIES["query_of_user"].replace("{limit}", str(limits.rows + 1))
        for row in cursor.execute(limited.replace("{text}", text.strip().rstrip(";"))):
            size += sum(len(value) if isinstance(value, (str, bytes)) else 8 for value in row)
            if len(rows) == limits.rows or size > limits.bytes:
                is_truncated = True
                break
            rows.append(row)
    except apsw.Error as error:
        raise _explained(error, limits) from error
    return SqlAnswer(columns=tuple(columns), rows=rows, is_truncated=is_truncated)


def _explained(error: apsw.Error, limits: SqlLimits) -> InputError | StoreError:
    if isinstance(error, apsw.InterruptError):
        return InputError(
            f"the query took longer than {limits.seconds:g}s", hint="ask for less, or allow more: --timeout"
        )
    if isinstance(error, apsw.ExecTraceAbort):
        return InputError("SQL: more than one statement", hint="give one SELECT")
    if isinstance(error, apsw.AuthError):
        return InputError(
            f"the query is not allowed: {error}", hint=f"only these views can be read: {', '.join(VIEWS)}"
        )
    if isinstance(error, (apsw.BusyError, apsw.IOError, apsw.CorruptError)):
        return StoreError(f"the query failed: {error}")
    return InputError(f"SQL: {error}", hint=QUERY_HINT)
