"""The stores that the suites of this folder are run on. A new one is one more entry in STORES: a function
that opens it for a place."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from joblens.ports.store import Store
from joblens.stores.sqlite import SqliteStore
from joblens.stores.wrappers.journal import JournaledStore


class Place:
    """Where a test's store is: a folder of its own, or a database that nothing is in."""

    def __init__(self, folder: Path, database: Callable[[], str], pooled: Callable[[str], str]) -> None:
        self.folder = folder
        self.database = database
        self.pooled = pooled  # the same database through a pooler in transaction mode


def open_sqlite(place: Place) -> Store:
    return SqliteStore(str(place.folder / "store" / "joblens.db"))


def open_postgres(place: Place) -> Store:
    from joblens.stores.postgres import PostgresStore

    return PostgresStore(place.database())


def open_pooled(place: Place) -> Store:
    from joblens.stores.postgres import PostgresStore

    return PostgresStore(place.pooled(place.database()))


def journaled(open_inner: Callable[[Place], Store]) -> Callable[[Place], Store]:
    """The same behind a journal of its own."""

    def open_it(place: Place) -> Store:
        journal = place.folder / f"journal-{len(list(place.folder.iterdir()))}"
        return JournaledStore(lambda: open_inner(place), str(journal))

    return open_it


STORES: dict[str, Callable[[Place], Store]] = {
    "sqlite": open_sqlite,
    "journaled": journaled(open_sqlite),
    "postgres": open_postgres,
    "journaled-postgres": journaled(open_postgres),
    "pooled-postgres": open_pooled,
}


@pytest.fixture(scope="session")
def emptied_database(request: pytest.FixtureRequest) -> Callable[[], str]:
    """One for all tests of a process: making a database takes longer than most tests. It goes with its
    server."""
    made: list[str] = []

    def emptied() -> str:
        if made:
            _empty(made[0])
        else:
            made.append(request.getfixturevalue("shared_postgres").new_database())
        return made[0]

    return emptied


def _empty(url: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True, options="-c lock_timeout=20s") as connection:
        rows = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'joblens' AND tablename <> 'schema_version'"
        ).fetchall()
        if rows:
            names = ", ".join(f"joblens.{name}" for (name,) in rows)
            connection.execute(f"TRUNCATE {names} RESTART IDENTITY CASCADE".encode())


@pytest.fixture
def place(tmp_path: Path, emptied_database: Callable[[], str], request: pytest.FixtureRequest) -> Place:
    urls: list[str] = []

    def database() -> str:
        if not urls:
            urls.append(emptied_database())
        return urls[0]

    def pooled(url: str) -> str:
        return str(request.getfixturevalue("shared_pooler").url_of(url))

    return Place(tmp_path, database, pooled)


@pytest.fixture(params=sorted(STORES))
def open_store(request: pytest.FixtureRequest, place: Place) -> Iterator[Callable[[], Store]]:
    """Opens the same store as often as it is called."""
    opened: list[Store] = []

    def open_it() -> Store:
        opened.append(STORES[request.param](place))
        return opened[-1]

    yield open_it
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Callable[[], Store]) -> Store:
    return open_store()
