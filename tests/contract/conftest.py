"""The stores that the suites of this folder are run on. A new one is one more entry in STORES: a function
that opens it for a place."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from joblens.ports.store import Store
from joblens.stores.remote import RemoteStore, ServerConnection
from joblens.stores.sqlite import SqliteStore
from joblens.stores.wrappers import StoreWrapper
from joblens.stores.wrappers.journal import JournaledStore
from tests.integration.served import Served


class Place:
    """Where a test's store is: a folder of its own, or a database that nothing is in."""

    def __init__(self, folder: Path, database: Callable[[], str], pooled: Callable[[str], str]) -> None:
        self.folder = folder
        self.database = database
        self.pooled = pooled  # the same database through a pooler in transaction mode
        self.server: Served | None = None  # of the store in the folder

    def close(self) -> None:
        if self.server is not None:
            self.server.stop()


def open_sqlite(place: Place) -> Store:
    return SqliteStore(str(place.folder / "store" / "joblens.db"))


def open_postgres(place: Place) -> Store:
    from joblens.stores.postgres import PostgresStore

    return PostgresStore(place.database())


def open_pooled(place: Place) -> Store:
    from joblens.stores.postgres import PostgresStore

    return PostgresStore(place.pooled(place.database()))


class ServedStore(StoreWrapper):
    """Writes to a store, and asks a real server about it: every question that a server answers goes over
    HTTP."""

    def __init__(self, inner: Store, server: Served) -> None:
        self._written = inner
        self._asked = RemoteStore(ServerConnection(server.options.socket_path))
        self.url = inner.url

    def close(self) -> None:
        self._asked.close()
        self._written.close()

    def _inner(self) -> Store:
        return self._written

    def holdings(self, **which: Any) -> Any:
        """What a worker has to look after is asked by workers, which use the store."""
        store: Any = self._written if "near" in which else self._asked
        return store.holdings(**which)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._asked if hasattr(RemoteStore, name) else self._written, name)


def open_served(place: Place) -> Store:
    inner = open_sqlite(place)
    if place.server is None:
        place.server = Served(place.folder, store=str(place.folder / "store" / "joblens.db")).__enter__()
    return ServedStore(inner, place.server)


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
    "server": open_served,
}

# A journal handles every store alike, and `test_postgres_outages` covers one before a server that goes away.
# Only leases and fencing tokens depend on both.
_BOTH = "journaled-postgres"
_ON_BOTH = ("test_deliveries_contract", "test_deliveries_state_machine", "test_deliveries_at_once")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "open_store" in metafunc.fixturenames:
        is_on_both = metafunc.module.__name__.endswith(_ON_BOTH)
        stores = [name for name in sorted(STORES) if name != _BOTH or is_on_both]
        metafunc.parametrize("open_store", stores, indirect=True)


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
    """Deletes all rows: TRUNCATE makes a new file for each of the tables and their indexes."""
    import psycopg

    with psycopg.connect(url, autocommit=True, options="-c lock_timeout=20s") as connection:
        rows = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'joblens' AND tablename <> 'schema_version'"
        ).fetchall()
        statements = [f"DELETE FROM joblens.{name}" for (name,) in rows]
        statements.insert(0, "SET session_replication_role = replica")  # in any order, without triggers
        connection.execute("; ".join(statements).encode())
        connection.execute(
            "SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false) "
            "FROM pg_sequences WHERE schemaname = 'joblens' AND last_value IS NOT NULL"
        )


@pytest.fixture
def place(
    tmp_path: Path, emptied_database: Callable[[], str], request: pytest.FixtureRequest
) -> Iterator[Place]:
    urls: list[str] = []

    def database() -> str:
        if not urls:
            urls.append(emptied_database())
        return urls[0]

    def pooled(url: str) -> str:
        return str(request.getfixturevalue("shared_pooler").url_of(url))

    place = Place(tmp_path, database, pooled)
    yield place
    place.close()


@pytest.fixture
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
