"""The store in a PostgreSQL database, through psycopg."""

from joblens.model.errors import MissingExtra, how_to_install

try:
    import psycopg as _psycopg  # noqa: F401
except ImportError as error:
    raise MissingExtra(
        f"a PostgreSQL store needs psycopg ({error})", hint=how_to_install("postgres")
    ) from error

from joblens.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
