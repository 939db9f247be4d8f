"""SQLite's errors in joblens' words."""

from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from joblens.model.errors import StoreCorrupt, StoreError

_REASONS: list[tuple[type[apsw.Error], str, str]] = [
    (apsw.FullError, "cannot be written: the disk is full", "free some space, or run `joblens prune`"),
    (apsw.ReadOnlyError, "cannot be written: it is read-only", "check who owns it and how it is mounted"),
    (apsw.BusyError, "is locked by another process", "try again; long vacuums and backups hold it a while"),
    (apsw.LockedError, "is locked by this process", "end the other use of it first"),
    (apsw.CantOpenError, "cannot be opened", "check that its directory exists and belongs to you"),
    (apsw.PermissionsError, "may not be used", "check who owns it"),
    (apsw.AuthError, "may not be used", "check who owns it"),
    (apsw.IOError, "cannot be read or written: input/output error", "check the disk and its free space"),
]


def translated_error(error: apsw.Error, path: str) -> StoreError:
    if isinstance(error, apsw.NotADBError):
        return StoreCorrupt(
            f"{path} is no joblens store, or the beginning of the file is damaged ({error})",
            hint="name another with --store; restore a backup, or move the file away to start afresh",
        )
    if isinstance(error, apsw.CorruptError):
        return StoreCorrupt(
            f"the store {path} is damaged ({error})",
            hint="run `joblens store check`; restore a backup, or move the file away to start afresh",
        )
    for kind, what, hint in _REASONS:
        if isinstance(error, kind):
            return StoreError(f"the store {path} {what} ({error})", hint=hint)
    return StoreError(f"the store {path} failed ({type(error).__name__}: {error})")


@contextmanager
def store_errors(path: str) -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        raise translated_error(error, path) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise StoreError(
            f"the store {path} cannot be used: {reason}",
            hint="check that its directory exists, belongs to you and has free space",
        ) from error
