"""One file of one user under one name is one workflow, whoever brings it in and however often at once."""

import threading
from collections.abc import Callable

import pytest

from joblens.ports.store import Store
from joblens.stores.wrappers.journal import JournaledStore
from tests.builders.runs import run, workflow
from tests.contract.conftest import STORES, Place

FILE = {"source": "/f.yaml", "user": "ann"}


def test_of_two_workflows_of_one_file_the_first_stays(store: Store) -> None:
    store.apply([workflow("w1", "flow", **FILE)])
    store.apply([workflow("w2", "flow", **FILE)])
    store.apply([workflow("w1", "flow", **FILE)])  # as a journal may tell it again
    assert [each.uuid for each in store.workflows()] == ["w1"]
    found = store.workflow_of_source("/f.yaml", "flow", "ann")
    assert found is not None
    assert found.uuid == "w1"


def test_workflows_that_came_from_no_file_are_each_their_own(store: Store) -> None:
    store.apply([workflow("w1", "flow", user="ann"), workflow("w2", "flow", user="ann")])
    assert len(store.workflows()) == 2


def test_a_run_that_comes_with_a_workflow_that_is_known_is_a_run_of_the_known_one(store: Store) -> None:
    store.apply([workflow("w1", "flow", **FILE), run("r1", "w1")])
    for _ in range(2):
        store.apply([run("r2", "w2"), workflow("w2", "flow", **FILE)])
    assert [(each.uuid, each.number, each.workflow_uuid) for each in store.runs("w1")] == [
        ("r1", 1, "w1"),
        ("r2", 2, "w1"),
    ]
    assert store.find_run("r2").workflow_number == 1
    assert store.check().problems == ()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_what_waited_in_a_journal_joins_the_workflow_that_was_made_meanwhile(kind: str, place: Place) -> None:
    from joblens.model.errors import StoreError

    is_there = False

    def open_it() -> Store:
        if not is_there:
            raise StoreError("not there yet")
        return STORES[kind](place)

    journal = str(place.folder / "journal")
    journaled = JournaledStore(open_it, journal, warn=lambda text: None, url="somewhere")
    journaled.apply([workflow("w2", "flow", **FILE)])
    journaled.apply([run("r2", "w2")])
    other = STORES[kind](place)
    other.apply([workflow("w1", "flow", **FILE)])
    is_there = True
    journaled.close()
    assert [each.uuid for each in other.runs("w1")] == ["r2"]
    other.close()


def test_many_at_once_make_one_workflow(open_store: Callable[[], Store]) -> None:
    stores = [open_store() for _ in range(6)]
    together = threading.Barrier(len(stores))

    def make(place: int) -> None:
        together.wait()
        stores[place].apply([workflow(f"w{place}", "flow", **FILE)])

    threads = [threading.Thread(target=make, args=(place,)) for place in range(len(stores))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(stores[0].workflows()) == 1
