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


class OlderStore:
    """A store with an older schema, which is migrated before the first write.

    Until then it stays as it is, so that other versions of joblens can continue to use it: a temporary copy
    with the present schema is read. If there is no space for one, the store is migrated. `warn`: None for a
    store that may only be read.
    """

    def __init__(
        self, connection: apsw.Connection, path: str, warn: Callable[[str], None] | None = None
    ) -> None:
        self._store = connection
        self._path = path
        self._warn = warn
        self._copy: apsw.Connection | None = None
        self._content: object = None  # SQLite's number of the content that was copied
        self.schema_version = 0  # at the last read

    def to_read(self) -> apsw.Connection:
        """Returns the connection to the copy; to the store, once another process has migrated it."""
        content = self._store.pragma("data_version")
        if content != self._content:
            self._discard()
            self.schema_version, _ = self._store.execute(QUERIES["identity"]).get
            if self.schema_version < len(migration_files()):
                self._make_copy()
            self._content = content
        return self._copy or self._store

    def _make_copy(self) -> None:
        try:
            self._copy = _upgraded_copy(self._store, self._path)
        except apsw.FullError as error:
            if self._warn is None:
                raise StoreError(
                    f"the store {self._path} has an old schema version, and there is no space for the "
                    "temporary copy from which it is read",
                    hint="free some space; a command of a user who may write to its directory upgrades it",
                ) from error
            self.migrated()

    def migrated(self) -> apsw.Connection:
        assert self._warn is not None
        migrate(self._store, self._path, self._warn)
        self.schema_version = len(migration_files())
        self._discard()
        return self._store

    def close(self) -> None:
        self._discard()
        self._store.close()

    def _discard(self) -> None:
        if self._copy is not None:
            self._copy.close()
            self._copy = None


def _upgraded_copy(connection: apsw.Connection, path: str) -> apsw.Connection:
    copy = apsw.Connection("")
    try:
        _copy(connection, copy)
        with writing(copy):
            _upgrade(copy, path)
    except BaseException:
        copy.close()
        raise
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
