"""The SQL files beside this module, read once."""

import functools
import os

from joblens.stores.named_queries import Queries

_HERE = os.path.dirname(__file__)


def read_text(name: str) -> str:
    with open(os.path.join(_HERE, name), encoding="utf-8") as file:
        return file.read()


@functools.cache
def queries_of(name: str) -> Queries:
    return Queries.parse(read_text(name))


@functools.cache
def encoded_queries(name: str) -> dict[str, bytes]:
    return {query: text.encode() for query, text in queries_of(name).items()}


def schema_files() -> list[str]:
    """What a new store is made of, in order: the first tables, then every change since."""
    return ["schema.sql", "tickets.sql", *(file for _, file in migration_files())]


def migration_files() -> list[tuple[int, str]]:
    """(the version that it brings the schema to, file), in order."""
    folder = os.path.join(_HERE, "migrations")
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return [(int(name[:4]), f"migrations/{name}") for name in names if name.endswith(".sql")]
