"""The stores that the suites of this folder are run on. A new one is one more entry in STORES: a function
that opens it for a folder."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from joblens.ports.store import Store
from joblens.stores.journal import JournaledStore
from joblens.stores.sqlite import SqliteStore


def open_sqlite(folder: Path) -> Store:
    return SqliteStore(str(folder / "store" / "joblens.db"))


def open_journaled(folder: Path) -> Store:
    """The same behind a journal of its own."""
    journal = folder / f"journal-{len(list(folder.iterdir()))}"
    return JournaledStore(lambda: open_sqlite(folder), str(journal))


STORES: dict[str, Callable[[Path], Store]] = {"sqlite": open_sqlite, "journaled": open_journaled}


@pytest.fixture(params=sorted(STORES))
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Store]]:
    """Opens the same store as often as it is called."""
    opened: list[Store] = []

    def open_it() -> Store:
        opened.append(STORES[request.param](tmp_path))
        return opened[-1]

    yield open_it
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Callable[[], Store]) -> Store:
    return open_store()
