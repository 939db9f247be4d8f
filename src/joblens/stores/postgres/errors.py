"""PostgreSQL's errors in joblens' words. A password never gets into them: what is shown of a URL goes
without, and the driver is not handed the URL itself."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors

from joblens.model.errors import StoreCorrupt, StoreError

_REASONS: list[tuple[tuple[type[psycopg.Error], ...], str, str]] = [
    (
        (errors.InvalidPassword, errors.InvalidAuthorizationSpecification),
        "does not let us in",
        "check user and password; ~/.pgpass and PGPASSWORD are read as well",
    ),
    ((errors.InvalidCatalogName,), "has no such database", "make it with `createdb`, or name another"),
    (
        (errors.InsufficientPrivilege,),
        "may not be used so by this user",
        "let its owner grant the rights: CREATE on the database, or all on the schema joblens",
    ),
    ((errors.ReadOnlySqlTransaction,), "is read-only", "name the primary server, not its standby"),
    ((errors.DiskFull,), "has no disk space left", "free some on the server"),
    ((errors.LockNotAvailable,), "is locked by another session", "try again; a long upkeep may hold it"),
    ((errors.QueryCanceled,), "did not answer in time", "try again; the server may be overloaded"),
    ((errors.TooManyConnections,), "has no connection left", "raise max_connections on the server"),
    ((errors.DataCorrupted, errors.IndexCorrupted), "is damaged", "restore a backup of the database"),
]


def translated_error(error: psycopg.Error, shown: str) -> StoreError:
    said = " ".join(str(error).split())
    for kinds, what, hint in _REASONS:
        if isinstance(error, kinds):
            kind = StoreCorrupt if errors.DataCorrupted in kinds else StoreError
            return kind(f"the store {shown} {what} ({said})", hint=hint)
    if isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
        return StoreError(
            f"the store {shown} cannot be reached ({said})",
            hint="check that the server runs, and what the URL says of it",
        )
    return StoreError(f"the store {shown} failed ({type(error).__name__}: {said})")


@contextmanager
def store_errors(shown: str) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise translated_error(error, shown) from error
