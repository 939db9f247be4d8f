"""What only happens in a store where several claim at once without waiting for each other."""

import threading
import time
from collections.abc import Iterator

import psycopg
import pytest

from joblens.model.delivery import Claim
from joblens.stores.postgres import PostgresStore, ticket_book
from tests.contract.conftest import Place
from tests.contract.ticket_builders import LEASE_S, ticketed, worker

_GATE = 7_041_776
_PATIENCE_S = 20.0
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

    def wait_for_somebody(self) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = %s AND NOT granted"
        while not self._server.execute(waiting, (_GATE,)).fetchall():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def open(self) -> None:
        self._server.close()


@pytest.fixture
def gate(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    query = ticket_book._QUERIES["oldest_waiting"]
    assert _QUEUES in query
    monkeypatch.setitem(ticket_book._QUERIES, "oldest_waiting", query.replace(_QUEUES, _GATED_QUEUES))
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
    gate.wait_for_somebody()
    assert [claim.fence for claim in quick.claim(worker("quick"), ["a1"], LEASE_S)] == [1]
    quick.give_back("quick", {"a1": 1})
    gate.open()
    looking.join(_PATIENCE_S)
    assert [claim.fence for claim in claims] == [2]
    assert [(held.worker, held.fence) for held in quick.holdings()] == [("slow", 2)]
    assert slow.renew(worker("slow"), {"a1": 2}, LEASE_S).fenced == frozenset()
    slow.close()
    quick.close()
