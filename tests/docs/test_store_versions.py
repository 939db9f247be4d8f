"""Schema versions in the docs, and the promise on which sharing a store rests: migrations only add."""

import re

import pytest

from joblens.stores.sqlite.opening import SCHEMA_VERSION as SQLITE
from tests.conftest import REPOSITORY

DOCS = REPOSITORY / "docs"
REMOVES = re.compile(
    r"\b(DROP (TABLE|COLUMN|FUNCTION)|RENAME|ALTER COLUMN \w+ (SET NOT NULL|TYPE))\b", re.IGNORECASE
)


@pytest.mark.needs("psycopg")
def test_the_docs_name_the_schema_versions() -> None:
    from joblens.stores.postgres.sql import SCHEMA_VERSION as POSTGRES

    format_page = (DOCS / "format.md").read_text()
    assert re.findall(r"schema version, now \*\*(\d+)\*\*", format_page) == [str(SQLITE), str(POSTGRES)]
    assert f"version is now **{POSTGRES}**" in (DOCS / "postgres.md").read_text()


@pytest.mark.parametrize("store", ["postgres", "sqlite"])
def test_migrations_only_add(store: str) -> None:
    files = sorted((REPOSITORY / "src/joblens/stores" / store / "migrations").glob("*.sql"))
    assert files
    assert not [file.name for file in files if REMOVES.search(file.read_text())]


def test_a_migration_that_removes_would_be_found() -> None:
    assert REMOVES.search("ALTER TABLE job DROP COLUMN name")
    assert not REMOVES.search("ALTER TABLE job ADD COLUMN name text")
