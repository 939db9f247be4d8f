"""The embedded store: one SQLite file, through apsw.

Not `sqlite3`: the SQLite of many Pythons has a WAL corruption race, and many processes write here."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from joblens.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]


def __getattr__(name: str) -> Any:
    """Imports the whole store at its first use: a plain job needs only `job_store`."""
    if name != "SqliteStore":
        raise AttributeError(name)
    from joblens.stores.sqlite.store import SqliteStore

    return SqliteStore
