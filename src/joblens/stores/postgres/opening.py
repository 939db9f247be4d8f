"""Makes the tables of a store, brings an old schema up to date, refuses a newer one."""

from joblens.model.errors import StoreError, StoreTooNew
from joblens.stores.postgres.connection import SCHEMA, Connection
from joblens.stores.postgres.sql import migration_files, read_text, schema_files

SCHEMA_VERSION = 4
_LOCK = 0x6A6C6E73  # 'jlns': whoever makes or changes tables holds it, so that many may start at once


def prepare(connection: Connection, shown: str, *, read_only: bool) -> None:
    """Called for every new connection: it may be another server than before."""
    version = _version(connection)
    if version == SCHEMA_VERSION:
        return
    if version is not None and version > SCHEMA_VERSION:
        raise StoreTooNew(
            f"the store {shown} has schema version {version}; this joblens knows {SCHEMA_VERSION} at most",
            hint="use the newer joblens that wrote it, or another store",
        )
    if read_only:
        if version is None:
            raise StoreError(
                f"there is no joblens store in {shown}", hint="run a job first, or name another with --store"
            )
        raise StoreError(
            f"the store {shown} has the old schema version {version} and is opened for reading only",
            hint="any joblens command of a user who may write to it brings it up to date",
        )
    with connection.transaction():
        # What others made while this waited is to be seen afterwards, whatever the server's usual isolation.
        connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        connection.execute("SELECT set_config('search_path', %s, true)", (SCHEMA,))
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        # A look into the catalogue itself: names that were not there before the wait are remembered as such.
        connection.execute("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %s", (SCHEMA,))
        _bring_up_to_date(connection, _version(connection))  # another process may have been quicker


def _bring_up_to_date(connection: Connection, version: int | None) -> None:
    if version is None:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
        for file in schema_files():
            connection.execute(read_text(file))
        connection.execute("INSERT INTO schema_version (version) VALUES (%s)", (SCHEMA_VERSION,))
    elif version < SCHEMA_VERSION:
        for number, file in migration_files():
            if number > version:
                connection.execute(read_text(file))
        connection.execute("UPDATE schema_version SET version = %s", (SCHEMA_VERSION,))


def _version(connection: Connection) -> int | None:
    """None: there is no store."""
    if connection.execute("SELECT to_regclass(%s)", (f"{SCHEMA}.schema_version",)).fetchone() == (None,):
        return None
    row = connection.execute("SELECT version FROM joblens.schema_version").fetchone()
    return None if row is None else int(row[0])
