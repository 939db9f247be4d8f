"""The SQL files beside this module, read once."""

import os

from joblens.stores.sql.named_queries import Queries

_HERE = os.path.dirname(__file__)


def read_text(name: str) -> str:
    with open(os.path.join(_HERE, name), encoding="utf-8") as file:
        return file.read()


def migration_files() -> list[str]:
    """In order; the n-th brings the schema to version n."""
    folder = os.path.join(_HERE, "migrations")
    return [f"migrations/{name}" for name in sorted(os.listdir(folder)) if name.endswith(".sql")]


QUERIES = Queries.parse(read_text("queries.sql"))
TICKET_QUERIES = Queries.parse(read_text("ticket_queries.sql"))
