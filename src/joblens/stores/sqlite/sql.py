"""SQL of the SQLite store: its files, queries by name, transactions and errors."""

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw
import msgspec

from joblens.model.errors import StoreCorrupt, StoreError
from joblens.stores.sql import Ask, Queries

_HERE = os.path.dirname(__file__)


def read_text(name: str) -> str:
    with open(os.path.join(_HERE, name), encoding="utf-8") as file:
        return file.read()


def migration_files() -> list[str]:
    """Returns migrations in order; the n-th brings the schema to version n."""
    folder = os.path.join(_HERE, "migrations")
    return [f"migrations/{name}" for name in sorted(os.listdir(folder)) if name.endswith(".sql")]


QUERIES = Queries.parse(read_text("queries.sql"))
TICKET_QUERIES = Queries.parse(read_text("ticket_queries.sql"))


@functools.cache
def access_queries() -> Queries:
    """Read on demand: most processes never do."""
    return Queries.parse(read_text("access.sql"))


@contextmanager
def writing(connection: apsw.Connection) -> Iterator[None]:
    return _transaction(connection, "begin_write")


@contextmanager
def reading(connection: apsw.Connection) -> Iterator[None]:
    """Reads several queries from one snapshot."""
    return _transaction(connection, "begin_read")


def _transaction(connection: apsw.Connection, begin: str) -> Iterator[None]:
    connection.execute(QUERIES[begin])
    try:
        yield
        connection.execute(QUERIES["commit"])
    except BaseException:
        if connection.in_transaction:  # SQLite rolls back by itself after some errors
            connection.execute(QUERIES["rollback"])
        raise


def asker(connection: apsw.Connection, queries: Queries = QUERIES) -> Ask:
    def ask(query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return connection.execute(queries[query], tuple(map(as_parameter, parameters))).fetchall()

    return ask


def as_parameter(value: Any) -> Any:
    """Encodes a list for json_each."""
    return msgspec.json.encode(value).decode() if isinstance(value, list) else value


_LEAST_FREE_BYTES = 1 << 16  # the index of a write-ahead log takes 32 KiB
_NOT_YOURS = "ask its owner, or name another store with --store"
_REASONS: list[tuple[type[apsw.Error], str, str]] = [
    (apsw.FullError, "cannot be written: the disk is full", "free some space on its disk"),
    (apsw.ReadOnlyError, "cannot be written: it is read-only", "check who owns it and how it is mounted"),
    (
        apsw.BusyError,
        "is locked by another process",
        "try again; long vacuums and backups hold the lock for a while",
    ),
    (apsw.LockedError, "is locked by this process", "close its other user in this process first"),
    (apsw.CantOpenError, "cannot be opened", "check that its directory exists and belongs to you"),
    (apsw.PermissionsError, "may not be used", "check who owns it"),
    (apsw.AuthError, "may not be used", "check who owns it"),
    (apsw.IOError, "cannot be read or written: input/output error", "check the disk and its free space"),
]


def translated_error(error: apsw.Error, path: str) -> StoreError:
    if isinstance(error, apsw.NotADBError):
        return StoreCorrupt(
            f"{path} is not a joblens store, or the beginning of the file is damaged ({error})",
            hint="name another with --store, restore a backup, or move the file away",
        )
    if isinstance(error, apsw.CorruptError):
        return StoreCorrupt(
            f"the store {path} is damaged ({error})",
            hint="restore a backup, or move the file away to start with an empty one",
        )
    if isinstance(error, apsw.CantOpenError) and os.path.exists(path) and not os.access(path, os.R_OK):
        return StoreError(f"no permission to read the store {path}", hint=_NOT_YOURS)
    for kind, what, hint in _REASONS:
        if isinstance(error, kind) or (kind is apsw.FullError and _is_for_want_of_space(error, path)):
            detail = "" if str(error) == "not an error" else f" ({error})"  # another connection's error
            return StoreError(f"the store {path} {what}{detail}", hint=hint)
    return StoreError(f"the store {path} failed ({type(error).__name__}: {error})")


def _is_for_want_of_space(error: apsw.Error, path: str) -> bool:
    """Whether space ran out: SQLite reports a log that cannot grow as an input/output error."""
    if not isinstance(error, apsw.IOError):
        return False
    try:
        found = os.statvfs(os.path.dirname(os.path.abspath(path)))
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < _LEAST_FREE_BYTES


@contextmanager
def store_errors(path: str) -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        raise translated_error(error, path) from error
    except OSError as error:
        reason = error.strerror or str(error)
        if isinstance(error, PermissionError):
            folder = os.path.dirname(os.path.abspath(path))
            message = f"the store {path} cannot be used: no permission to use its directory {folder}"
            raise StoreError(message, hint=_NOT_YOURS) from error
        raise StoreError(
            f"the store {path} cannot be used: {reason}",
            hint="check that its directory exists and has free space",
        ) from error
