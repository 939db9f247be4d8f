"""Migrations of a store to the present schema, and copies of stores."""

import os
from collections.abc import Callable

import apsw

from joblens.files.atomic import atomic_file
from joblens.model.errors import StoreCorrupt, StoreError
from joblens.stores.sqlite import statistics
from joblens.stores.sqlite.sql import QUERIES, migration_files, read_text, writing

_STATISTICS_SINCE = 2  # version that introduced rollups, which are filled from existing jobs
_PAGES_AT_ONCE = 1000  # of a copy; others may write in between


def migrate(connection: apsw.Connection, path: str, warn: Callable[[str], None]) -> None:
    """Upgrades the store in one transaction, after a backup beside it."""
    backup = ""
    try:
        with writing(connection):
            version, _ = connection.execute(QUERIES["identity"]).get
            if version == len(migration_files()):  # another process was faster
                return
            backup = _back_up(path, version)
            present = _upgrade(connection, path)
    except BaseException:
        if backup:
            os.unlink(backup)
        raise
    warn(
        f"the store {path} was upgraded from schema version {version} to {present}; "
        f"{backup} is a copy from before"
    )


def _back_up(path: str, version: int) -> str:
    backup = f"{path}.schema-{version}"
    before = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)  # one that writes cannot be copied
    try:
        copy_store(before, backup)
    finally:
        before.close()
    return backup


def upgraded_copy(connection: apsw.Connection, path: str) -> apsw.Connection:
    """Returns a connection to a temporary copy with the present schema, and closes the other one."""
    copy = apsw.Connection("")
    try:
        _copy(connection, copy)
        with writing(copy):
            _upgrade(copy, path)
    except apsw.FullError as error:
        raise StoreError(
            f"the store {path} has an old schema version, and there is no space for the temporary copy from "
            "which it is read",
            hint="any joblens command of a user who may write to its directory brings it up to date",
        ) from error
    connection.close()
    return copy


def _upgrade(connection: apsw.Connection, path: str) -> int:
    """Returns the present version."""
    version, _ = connection.execute(QUERIES["identity"]).get
    files = migration_files()
    try:
        for file in files[version:]:
            connection.execute(read_text(file))
    except apsw.SQLError as error:
        raise StoreCorrupt(
            f"the store {path} has the number of schema version {version}, but not its tables ({error}): "
            "another program has changed one of them",
            hint="restore a backup, or move the file away to start with an empty one",
        ) from error
    if version < _STATISTICS_SINCE:
        statistics.rebuild(connection)
    connection.execute(QUERIES["set_user_version"].format(version=len(files)))
    return len(files)


def copy_store(connection: apsw.Connection, path: str) -> None:
    """Makes a consistent copy while others write. Replaces a file of that name."""
    with atomic_file(path) as part:
        target = apsw.Connection(part, flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            _copy(connection, target)
        finally:
            target.close()


def _copy(source: apsw.Connection, target: apsw.Connection) -> None:
    with target.backup("main", source, "main") as copy:
        while not copy.done:
            copy.step(_PAGES_AT_ONCE)
