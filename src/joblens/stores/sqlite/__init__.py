"""The embedded store: one SQLite file, through apsw."""

from joblens.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
