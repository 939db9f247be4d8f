"""The store in a PostgreSQL database, through psycopg."""

from joblens.model.errors import MissingExtra

try:
    import psycopg as _psycopg  # noqa: F401
except ImportError as error:
    raise MissingExtra(
        f"a PostgreSQL store needs psycopg ({error})", hint="pip install 'joblens[postgres]'"
    ) from error

from joblens.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
