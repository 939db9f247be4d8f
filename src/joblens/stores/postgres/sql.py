"""SQL of the PostgreSQL store: its files, queries by name, and the schema and its upgrades."""

import functools
import os
import re
from typing import Any

from joblens.model.errors import StoreTooNew
from joblens.stores.postgres.connection import SCHEMA, Connection
from joblens.stores.sql import Ask, Queries

_TABLES = (
    "annotation|api_token|audit_entry|cancel_request|detail|finding|idempotency_key|job|job_details|provenance|rollup"
    "|run|run_event|sample_piece|schema_version|sketch|tag|ticket|tombstone|worker|workflow"
)
_TABLE_USED = re.compile(rf"\b((?:FROM|JOIN|INTO|UPDATE|USING)\s+)({_TABLES})\b(?!\.)")
_HERE = os.path.dirname(__file__)


def read_text(name: str) -> str:
    with open(os.path.join(_HERE, name), encoding="utf-8") as file:
        return file.read()


@functools.cache
def queries_of(name: str) -> Queries:
    return Queries.parse(qualified(read_text(name)))


def qualified(text: str) -> str:
    """Adds the schema to the names of tables: behind a pooler, no session keeps a search_path."""
    return _TABLE_USED.sub(r"\1joblens.\2", text)


@functools.cache
def encoded_queries(name: str) -> dict[str, bytes]:
    return {query: text.encode() for query, text in queries_of(name).items()}


def schema_files() -> list[str]:
    """Returns the scripts that build a new store, in order: the first schema, then every migration."""
    return ["schema.sql", "tickets.sql", *(file for _, file in migration_files())]


def migration_files() -> list[tuple[int, str]]:
    """Returns (resulting schema version, file), in order."""
    folder = os.path.join(_HERE, "migrations")
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return [(int(name[:4]), f"migrations/{name}") for name in names if name.endswith(".sql")]


def asker(connection: Connection, file: str = "reading.sql") -> Ask:
    queries = queries_of(file)

    def ask(query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        text = queries[query]
        cursor = connection.execute(text.encode(), parameters or None, binary=True)
        finds = text.startswith(("SELECT", "WITH")) or "RETURNING" in text
        return cursor.fetchall() if finds else []

    return ask


SCHEMA_VERSION = 5
_LOCK = (
    0x6A6C6E73  # 'jlns': held while tables are created or changed, so that many processes may start at once
)


def prepare(connection: Connection, shown: str) -> None:
    """Checks the schema, creates or upgrades it.

    Called for every new connection: the server may be another one.
    """
    version = _version(connection)
    if version == SCHEMA_VERSION:
        return
    if version is not None and version > SCHEMA_VERSION:
        raise StoreTooNew(
            f"the store {shown} has schema version {version}; this joblens knows {SCHEMA_VERSION} at most",
            hint="use the newer joblens that wrote it, or another store",
        )
    with connection.transaction():
        # Reads what others created during the wait, whatever the server's default isolation.
        connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        connection.execute("SELECT set_config('search_path', %s, true)", (SCHEMA,))
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        # Asks the catalogue itself: the session caches that a name did not exist before the wait.
        connection.execute("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %s", (SCHEMA,))
        _bring_up_to_date(connection, _version(connection))  # another process may have been faster


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
    """Returns the schema version; None: there is no store."""
    if connection.execute("SELECT to_regclass(%s)", (f"{SCHEMA}.schema_version",)).fetchone() == (None,):
        return None
    row = connection.execute("SELECT version FROM joblens.schema_version").fetchone()
    return None if row is None else int(row[0])
