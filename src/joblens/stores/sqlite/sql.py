"""The SQL files beside this module, read once."""

import os

_HERE = os.path.dirname(__file__)
_MARK = "-- name: "


class Queries(dict[str, str]):
    """Named queries. The names are checked where they are asked for: a wrong one is a KeyError."""

    @classmethod
    def parse(cls, text: str) -> "Queries":
        queries = cls()
        for part in text.split(_MARK)[1:]:
            name, _, body = part.partition("\n")
            lines = [line for line in body.splitlines() if not line.startswith("--")]
            queries[name.strip()] = "\n".join(lines).strip()
        return queries


def read_text(name: str) -> str:
    with open(os.path.join(_HERE, name), encoding="utf-8") as file:
        return file.read()


def migration_files() -> list[str]:
    """In order; the n-th brings the schema to version n."""
    folder = os.path.join(_HERE, "migrations")
    return [f"migrations/{name}" for name in sorted(os.listdir(folder)) if name.endswith(".sql")]


QUERIES = Queries.parse(read_text("queries.sql"))
