"""Queries in SQL by people: in a process of their own, on a connection that can only read, and only views.

One call of an SQL function can take hours (`instr` of two long texts), and nothing inside SQLite ends it or
bounds its memory. So the kernel ends the process at the time limit, and refuses it more memory.

The name of a view is no proof of who reads a table: a query can give the same name to a part of itself. So
each view reads through another one with a secret name, and only that one may read tables."""

import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import apsw
import msgspec

from joblens.model import errors
from joblens.model.errors import InputError, JoblensError, StoreError
from joblens.model.sql import QUERY_HINT, VIEWS, SqlAnswer, SqlLimits
from joblens.stores.sql import Queries
from joblens.stores.sqlite.opening import open_connection
from joblens.stores.sqlite.sql import QUERIES, read_text, store_errors

_STEPS = 5000  # of SQLite between two readings of the clock
_LEAST_S = 0.001  # 0 would be no limit
_MEMORY_BYTES = 512 << 20
_VALUE_BYTES = 16 << 20
_TEXT_BYTES = 200_000
_CACHE_KIB = 32 << 10
_FORBIDDEN = frozenset(
    ("load_extension", "sqlite_compileoption_get", "sqlite_compileoption_used", "fts3_tokenizer")
)
_OWN_TABLES = frozenset(("json_each", "json_tree", "generate_series"))
_RUNS = frozenset((apsw.SQLITE_SELECT, apsw.SQLITE_RECURSIVE))


class _Question(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    text: str
    limits: SqlLimits
    only_user: str | None


class _Reply(msgspec.Struct, frozen=True, kw_only=True):
    """An answer, or an error by its name in `model.errors`."""

    answer: SqlAnswer | None = None
    error: str = ""
    message: str = ""
    hint: str = ""


def answer(path: str, text: str, limits: SqlLimits, only_user: str | None) -> SqlAnswer:
    question = _Question(path=os.path.abspath(path), text=text, limits=limits, only_user=only_user)
    return _answered(question) if limits.is_trusted else _answered_elsewhere(question)


def _answered_elsewhere(question: _Question) -> SqlAnswer:
    done = subprocess.run(
        [sys.executable, "-P", "-m", __name__],
        input=msgspec.msgpack.encode(question),
        capture_output=True,
        check=False,
    )
    if done.returncode == -signal.SIGALRM:
        raise _too_long(question.limits)
    try:
        reply = msgspec.msgpack.decode(done.stdout, type=_Reply)
    except msgspec.MsgspecError as error:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise StoreError(f"the process of the query ended with {done.returncode}: {last}") from error
    if reply.answer is None:
        raise getattr(errors, reply.error)(reply.message, hint=reply.hint)
    return reply.answer


def main() -> None:
    """Answers the question on standard input."""
    question = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=_Question)
    _limit_process(question.limits.timeout_s)
    try:
        reply = _Reply(answer=_answered(question))
    except MemoryError:
        hint = "ask for less: fewer or shorter values at a time"
        message = f"the query needs more than {_MEMORY_BYTES >> 20} MiB of memory"
        reply = _Reply(error="InputError", message=message, hint=hint)
    except JoblensError as error:
        reply = _Reply(error=type(error).__name__, message=str(error), hint=error.hint)
    sys.stdout.buffer.write(msgspec.msgpack.encode(reply))


def _limit_process(seconds: float) -> None:
    for number in (signal.SIGALRM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGALRM, signal.SIGINT))
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
    signal.setitimer(signal.ITIMER_REAL, max(_LEAST_S, seconds))


def _answered(question: _Question) -> SqlAnswer:
    with store_errors(question.path):
        connection, is_older = open_connection(
            question.path,
            read_only=True,
            busy_timeout_s=question.limits.timeout_s,
            warn=_no_warning,
        )
        if is_older:
            from joblens.stores.sqlite.migration import OlderStore

            connection = OlderStore(connection, question.path).to_read()
    try:
        _make_views(connection, question.text, question.only_user)
        until_s = time.monotonic() + question.limits.seconds
        return _asked(connection, question.text, question.limits, until_s)
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
    except apsw.InterruptError as error:
        raise _too_long(limits) from error
    except apsw.NoMemError as error:
        raise MemoryError from error
    except apsw.Error as error:
        raise _explained(error) from error
    except UnicodeDecodeError as error:
        raise InputError(
            "a value in the answer is not UTF-8 text", hint="read its bytes: CAST(value AS BLOB), hex(value)"
        ) from error
    return SqlAnswer(columns=tuple(columns), rows=rows, is_truncated=is_truncated)


def _too_long(limits: SqlLimits) -> InputError:
    return InputError(
        f"the query took longer than {limits.seconds:g}s", hint="ask for less, or allow more: --timeout"
    )


def _explained(error: apsw.Error) -> InputError | StoreError:
    if isinstance(error, apsw.ExecTraceAbort):
        return InputError("SQL: more than one statement", hint="give one SELECT")
    if isinstance(error, apsw.AuthError):
        return InputError(
            f"the query is not allowed: {error}", hint=f"only these views can be read: {', '.join(VIEWS)}"
        )
    if isinstance(error, apsw.TooBigError):
        return InputError(
            f"a value of the query has more than {_VALUE_BYTES >> 20} MiB", hint="make it shorter"
        )
    if isinstance(error, (apsw.BusyError, apsw.IOError, apsw.CorruptError)):
        return StoreError(f"the query failed: {error}")
    return InputError(f"SQL: {error}", hint=QUERY_HINT)


if __name__ == "__main__":
    main()
