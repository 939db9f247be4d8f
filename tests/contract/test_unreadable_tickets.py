"""What a newer joblens wrote in a way that this one does not know, or what is damaged: that job ends with a
reason, and everything else goes on."""

from collections.abc import Callable

import apsw
import pytest

from joblens.model.delivery import FormerWorker
from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Status
from joblens.model.settings import is_postgres
from joblens.ports.store import QueueStore
from tests.builders.tickets import LEASE_S, begun, ticketed, worker
from tests.builders.writes import queued

OF_A1 = "(SELECT id FROM job WHERE uuid = 'a1')"
NEWER_TICKET = b'{"uuid":"a1","queue":"q","order":{},"retry_lost":"whenever"}'
HALF_A_TICKET = b'{"uuid":"a1","que'
NOT_EVEN_TEXT = b'{"uuid":"\xff"}'


def _overwrite(store: QueueStore, table: str, column: str, data: bytes, which: str) -> None:
    if is_postgres(store.url):
        import psycopg

        with psycopg.connect(store.url, prepare_threshold=None) as server:
            server.execute("SET LOCAL search_path TO joblens")
            assert server.execute(
                f"UPDATE {table} SET {column} = %s WHERE {which}".encode(), (data,)
            ).rowcount
        return
    # Through the stores' own SQLite: a second one in a process drops the locks of the first when it closes.
    file = apsw.Connection(store.url)
    file.execute(f"UPDATE {table} SET {column} = ? WHERE {which}", (data,))
    assert file.changes()
    file.close()


def _spoil_ticket(store: QueueStore, data: bytes = NEWER_TICKET) -> None:
    _overwrite(store, "ticket", "data", data, f"job_id = {OF_A1}")


def _spoil_job(store: QueueStore) -> None:
    _overwrite(store, "detail", "job", b'{"uuid":7}', f"job_id = {OF_A1}")


Claiming = Callable[[QueueStore], list[str]]


def _claim_waiting(store: QueueStore) -> list[str]:
    return [claim.job.uuid for claim in store.claim_waiting(worker(), 1, LEASE_S)]


def _claim_named(store: QueueStore) -> list[str]:
    return [claim.job.uuid for claim in store.claim(worker(), ["a1", "b1"], LEASE_S)]


@pytest.mark.parametrize("data", [NEWER_TICKET, HALF_A_TICKET, NOT_EVEN_TEXT])
@pytest.mark.parametrize("claim", [_claim_waiting, _claim_named])
def test_a_ticket_that_cannot_be_read_ends_its_job_and_no_other(
    store: QueueStore, claim: Claiming, data: bytes
) -> None:
    store.apply([*ticketed("a1"), *ticketed("b1"), *ticketed("c1", after="a1")])
    _spoil_ticket(store, data)
    claimed = claim(store) or claim(store)
    assert claimed == ["b1"]
    outcome = store.find("a1").outcome
    assert outcome is not None
    assert (outcome.status, outcome.reason) == (Status.ERROR, "not-started")
    assert "cannot read its command" in (outcome.error or "")
    assert store.find("c1").status is Status.CANCELLED


def test_a_job_that_cannot_be_read_ends_and_is_listed_without_what_it_is(store: QueueStore) -> None:
    store.apply([*ticketed("a1"), *ticketed("b1")])
    _spoil_job(store)
    assert sorted(record.job.uuid for record in store.running()) == ["a1", "b1"]
    assert (_claim_waiting(store) or _claim_waiting(store)) == ["b1"]
    assert store.states(["a1"]) == {"a1": Status.ERROR}
    assert store.find("a1").job.argv == ()
    assert len(list(store.records(HistoryQuery()))) == 2


def test_of_a_lost_worker_a_job_whose_ticket_cannot_be_read_is_lost(store: QueueStore) -> None:
    store.apply(ticketed("a1"))
    store.claim(worker(), ["a1"], LEASE_S)
    _spoil_ticket(store)
    assert store.take_back("a1", 1) is Status.LOST
    assert "cannot read its command" in str(store.find("a1").outcome)


def test_a_job_whose_ticket_cannot_be_read_can_be_given_back_and_withdrawn(store: QueueStore) -> None:
    store.apply(ticketed("a1"))
    store.claim(worker(), ["a1"], LEASE_S)
    _spoil_ticket(store)
    store.give_back("w1", {"a1": 1})
    assert store.holdings() == []
    assert store.withdraw("a1")
    assert store.find("a1").status is Status.CANCELLED


def test_an_attempt_that_cannot_be_read_hides_no_holding(store: QueueStore) -> None:
    store.apply([*ticketed("a1"), *ticketed("b1")])
    store.claim(worker(), ["a1", "b1"], LEASE_S)
    store.apply([begun("a1", 1), begun("b1", 1)])
    _overwrite(store, "detail", "attempt", b"[]", f"job_id = {OF_A1}")
    assert {held.uuid: held.attempt is None for held in store.holdings()} == {"a1": True, "b1": False}
    assert store.take_back("a1", 1) is Status.QUEUED
    (claim,) = store.claim(worker("w2"), ["a1"], LEASE_S)
    assert (claim.former, claim.lost_attempt) == (FormerWorker("w1"), None)


def test_a_worker_that_cannot_be_read_hides_no_other(store: QueueStore) -> None:
    for name in ("w1", "w2"):
        store.renew(worker(name), {}, LEASE_S)
    _overwrite(store, "worker", "data", b'{"name":1}', "name = 'w1'")
    assert [each.name for each in store.workers()] == ["w2"]


def test_an_outcome_that_cannot_be_read_is_reported_with_the_job_it_is_of(store: QueueStore) -> None:
    from joblens.model.errors import StoreCorrupt
    from tests.builders.writes import ended

    store.apply([queued("a1"), ended("a1")])
    _overwrite(store, "detail", "outcome", b"{}", f"job_id = {OF_A1}")
    with pytest.raises(StoreCorrupt, match="job a1 cannot be read"):
        store.find("a1")
