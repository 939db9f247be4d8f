"""Queries in SQL by people: in a transaction that can only read, and only views.

The views and the query itself become temporary views, whose stored form has the tables and functions it uses,
whatever the text looks like. The transaction is rolled back, so nothing of it remains."""

import re
import time
from decimal import Decimal
from typing import Any

import psycopg
from psycopg import errors, sql

from joblens.model.errors import InputError
from joblens.model.sql import QUERY_HINT, VIEWS, SqlAnswer, SqlLimits
from joblens.stores.postgres.connection import Connection, Database, TimeLimitedConnection
from joblens.stores.postgres.sql import queries_of

_ROWS_AT_ONCE = 200
_TABLES = re.compile(r":relid (\d+)")
_FUNCTIONS = re.compile(r":(?:funcid|opfuncid|aggfnoid|winfnoid) (\d+)")


def answer(database: Database, text: str, limits: SqlLimits, only_user: str | None) -> SqlAnswer:
    with database.use(timeout_s=limits.timeout_s) as connection:
        connection.begin("BEGIN READ WRITE")
        try:
            return _asked(connection, text, limits, only_user)
        except psycopg.Error as error:
            if explained := _explained(error, limits):
                raise explained from error
            raise
        finally:
            if not connection.closed:
                connection.execute("ROLLBACK")


def _asked(
    connection: TimeLimitedConnection, text: str, limits: SqlLimits, only_user: str | None
) -> SqlAnswer:
    until_s = time.monotonic() + limits.seconds
    queries = queries_of("sql_queries.sql")
    connection.execute(queries["limit_memory"].encode())
    for name, view in queries_of("views.sql").items():
        connection.execute(
            f"CREATE TEMP VIEW {name} AS {view.format(**_mine(connection, only_user))}".encode()
        )
    connection.execute(queries["see_views_only"].encode())
    # In the extended protocol, which `binary` asks for, a text is one statement.
    made = queries["make_query"].replace("{text}", text.strip().rstrip(";"))
    connection.execute(made.encode(), binary=True)
    _check(connection)
    connection.execute("SET TRANSACTION READ ONLY")
    connection.execute(queries["open_cursor"].format(limit=limits.rows + 1).encode())
    return _fetched(connection, limits, until_s)


def _mine(connection: Connection, only_user: str | None) -> dict[str, str]:
    tables = {"mine": "job", "mine_of_workflow": "workflow", "mine_of_tombstone": "tombstone"}
    if only_user is None:
        return dict.fromkeys(tables, "TRUE")
    user = sql.Literal(only_user).as_string(connection)
    return {name: f"{table}.user_name = {user}" for name, table in tables.items()}


def _check(connection: Connection) -> None:
    """Raises InputError for tables beside the views, and for functions that do more than compute."""
    queries = queries_of("sql_queries.sql")
    ((tree,),) = connection.execute(queries["stored_form"].encode()).fetchall()
    tables = [int(number) for number in _TABLES.findall(tree)]
    functions = [int(number) for number in _FUNCTIONS.findall(tree)]
    for kind, found in (
        ("table", connection.execute(queries["other_tables"].encode(), (tables, list(VIEWS)))),
        ("function", connection.execute(queries["other_functions"].encode(), (functions,))),
    ):
        for (name,) in found.fetchall():
            raise InputError(
                f"the query is not allowed: {kind} {name}",
                hint=f"only these views can be read: {', '.join(VIEWS)}",
            )


def _fetched(connection: Connection, limits: SqlLimits, until_s: float) -> SqlAnswer:
    rows: list[tuple[Any, ...]] = []
    size = largest = 0
    count = 1
    while True:
        cursor = connection.execute(f"FETCH {count} FROM joblens_rows".encode())
        columns = tuple(column.name for column in cursor.description or ())
        part = cursor.fetchall()
        for row in part:
            row_size = sum(len(value) if isinstance(value, (str, bytes)) else 8 for value in row)
            size, largest = size + row_size, max(largest, row_size)
            if len(rows) == limits.rows or size > limits.bytes:
                return SqlAnswer(columns=columns, rows=rows, is_truncated=True)
            rows.append(tuple(_plain(value) for value in row))
        if len(part) < count:
            return SqlAnswer(columns=columns, rows=rows)
        # Rows arrive together: no more of them than the limit allows.
        count = min(2 * count, _ROWS_AT_ONCE, 1 + (limits.bytes - size) // (largest or 1))
        if time.monotonic() > until_s:
            raise _too_long(limits)


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value


def _too_long(limits: SqlLimits) -> InputError:
    return InputError(
        f"the query took longer than {limits.seconds:g}s", hint="ask for less, or allow more: --timeout"
    )


def _explained(error: psycopg.Error, limits: SqlLimits) -> InputError | None:
    """None: the store is at fault, not the query."""
    if isinstance(error, errors.QueryCanceled):
        return _too_long(limits)
    if isinstance(error, (errors.ProgrammingError, errors.DataError, errors.NotSupportedError)):
        message = " ".join(str(error).split("\n")[0].split())
        return InputError(f"SQL: {message}", hint=QUERY_HINT)
    return None
