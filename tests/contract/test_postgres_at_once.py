"""What only happens in a store that several change at the same moment."""

import threading
import time
from collections.abc import Iterator

import pytest

pytest.importorskip("psycopg")

import psycopg

from joblens.model.delivery import Claim
from joblens.model.writes import CancelAsked
from joblens.stores.postgres import PostgresStore, tables
from joblens.stores.postgres.connection import Connection
from joblens.stores.postgres.writer import Batch
from tests.builders.tickets import LEASE_S, ticketed, worker
from tests.builders.writes import ended, queued, started, whole_job
from tests.contract.conftest import Place

_GATE = 7_041_776
_TIMEOUT_S = 20.0
_QUEUES = b"FROM unnest(%(queues)s::text[]) AS wanted (queue)"
_GATED_QUEUES = (
    b"FROM (SELECT queue, pg_advisory_xact_lock_shared(%d) FROM unnest(%%(queues)s::text[]) AS each (queue)"
    b" OFFSET 0) AS wanted (queue, gate)" % _GATE
)


class Gate:
    """While it is closed, who looks for waiting tickets has begun to look and not yet found any."""

    def __init__(self, url: str) -> None:
        self._server = psycopg.connect(url, autocommit=True)
        self._server.execute("SELECT pg_advisory_lock(%s)", (_GATE,))

    def wait_for_someone(self) -> None:
        deadline = time.monotonic() + _TIMEOUT_S
        waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = %s AND NOT granted"
        while not self._server.execute(waiting, (_GATE,)).fetchall():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def open(self) -> None:
        self._server.close()


@pytest.fixture
def gate(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    query = tables._QUERIES["oldest_waiting"]
    assert _QUEUES in query
    monkeypatch.setitem(tables._QUERIES, "oldest_waiting", query.replace(_QUEUES, _GATED_QUEUES))
    gate = Gate(place.database())
    yield gate
    gate.open()


def test_a_ticket_that_went_and_came_back_meanwhile_is_claimed_under_its_present_fence(
    place: Place, gate: Gate
) -> None:
    slow, quick = PostgresStore(place.database()), PostgresStore(place.database())
    slow.apply(ticketed("a1"))
    claims: list[Claim] = []
    looking = threading.Thread(
        target=lambda: claims.extend(slow.claim_waiting(worker("slow"), 4, LEASE_S)), daemon=True
    )
    looking.start()
    gate.wait_for_someone()
    assert [claim.fence for claim in quick.claim(worker("quick"), ["a1"], LEASE_S)] == [1]
    quick.give_back("quick", {"a1": 1})
    gate.open()
    looking.join(_TIMEOUT_S)
    assert [claim.fence for claim in claims] == [2]
    assert [(held.worker, held.fence) for held in quick.holdings()] == [("slow", 2)]
    assert slow.renew(worker("slow"), {"a1": 2}, LEASE_S).fenced == frozenset()
    slow.close()
    quick.close()


def test_a_cancel_that_comes_while_the_job_is_ending_is_not_kept_for_ever(place: Place) -> None:
    ending, asking = PostgresStore(place.database()), PostgresStore(place.database())
    asking.apply([queued("a1"), started("a1")])
    has_written, may_commit = threading.Event(), threading.Event()

    def end(connection: Connection) -> None:
        Batch([ended("a1")], 3).write(connection)
        connection.execute("SELECT 1").fetchall()  # all that was sent before has been carried out
        has_written.set()
        may_commit.wait(_TIMEOUT_S)

    threads = [
        threading.Thread(target=lambda: ending._database.write(end), daemon=True),
        threading.Thread(target=lambda: asking.apply([CancelAsked("a1", 1, "ann")]), daemon=True),
    ]
    threads[0].start()
    assert has_written.wait(_TIMEOUT_S)
    threads[1].start()
    _wait_for_a_lock(place.database(), threads[1])
    may_commit.set()
    for thread in threads:
        thread.join(_TIMEOUT_S)
    assert ending.cancel_requests() == {}
    ending.close()
    asking.close()


def _wait_for_a_lock(url: str, thread: threading.Thread) -> None:
    """Somebody waits for another's transaction, or the thread did not have to."""
    with psycopg.connect(url, autocommit=True) as server:
        while thread.is_alive() and not server.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchall():
            time.sleep(0.01)


def test_a_vacuum_forgets_cancels_of_jobs_that_have_ended(place: Place) -> None:
    store = PostgresStore(place.database())
    store.apply([*whole_job("a1"), queued("b1"), CancelAsked("b1", 1, "ann")])
    with psycopg.connect(place.database(), options="-c search_path=joblens") as server:
        server.execute("INSERT INTO cancel_request VALUES ('a1', 1, 'ann')")
    assert store.cancel_requests().keys() == {"a1", "b1"}
    store.vacuum()
    assert store.cancel_requests().keys() == {"b1"}
    store.close()
