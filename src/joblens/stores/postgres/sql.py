"""The SQL files beside this module, read once."""

import functools
import os
import re

from joblens.stores.sql.named_queries import Queries

_TABLES = (
    "cancel_request|detail|job|job_details|provenance|rollup|run|run_event|sample_piece|schema_version|sketch|tag"
    "|ticket|worker|workflow"
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
    """Tables with their schema wherever rows are read from them or written to: behind a pooler no session
    remembers where to look for them."""
    return _TABLE_USED.sub(r"\1joblens.\2", text)


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
