"""What every store must do about tickets."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from joblens.model.delivery import Claim, FormerWorker, TicketQuery, WorkerInfo
from joblens.model.errors import UnknownJob
from joblens.model.history import HistoryQuery
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import RetryLost, Status
from joblens.model.values.labels import queue_and_label
from joblens.model.writes import CancelAsked
from joblens.ports.store import QueueStore
from joblens.stores.wrappers.fenced import FencedStore
from tests.builders.tickets import LEASE_S, begun, done, ticketed, under, worker
from tests.builders.writes import NOON_US, ended, queued, samples, started, threads
from tests.conftest import python_path

REPOSITORY = Path(__file__).resolve().parents[2]


def _claimed(store: QueueStore, name: str = "w1", lease_s: float = LEASE_S) -> dict[str, int]:
    return {claim.job.uuid: claim.fence for claim in store.claim_waiting(worker(name), 100, lease_s)}


def _on(host: str, name: str) -> WorkerInfo:
    return replace(worker(name), host=host)


def _is_expired(store: QueueStore, uuid: str) -> bool:
    return any(each.expired_us > 0 for each in store.holdings() if each.uuid == uuid)


# -- claims


def test_a_claim_brings_the_job_and_what_is_to_be_run(store: QueueStore) -> None:
    writes = ticketed("a1")
    store.apply(writes)
    (claim,) = store.claim(worker(), ["a1"], LEASE_S)
    assert (claim.job, claim.ticket) == (writes[0].job, writes[1].ticket)  # type: ignore[union-attr]
    assert (claim.fence, claim.former, claim.lost_attempt) == (1, None, None)
    assert store.find("a1").status is Status.QUEUED


def test_a_ticket_is_claimed_once(store: QueueStore) -> None:
    store.apply(ticketed("a1"))
    assert len(store.claim(worker("w1"), ["a1"], LEASE_S)) == 1
    assert store.claim(worker("w2"), ["a1"], LEASE_S) == []
    assert store.claim(worker("w1"), ["a1"], LEASE_S) == []
    assert _claimed(store, "w2") == {}


def test_several_are_claimed_in_the_order_they_were_asked_for(store: QueueStore) -> None:
    store.apply([write for uuid in ("a1", "b1", "c1") for write in ticketed(uuid)])
    claims = store.claim(worker(), ["c1", "nobody", "a1"], LEASE_S)
    assert [claim.job.uuid for claim in claims] == ["c1", "a1"]


def test_the_oldest_of_the_workers_queues_are_claimed_first(store: QueueStore) -> None:
    for uuid, queue in (("a1", "q"), ("b1", "r"), ("c1", "s"), ("d1", "q"), ("e1", "r")):
        store.apply(ticketed(uuid, queue=queue))
    claims = store.claim_waiting(worker(queues=("r", "q")), 3, LEASE_S)
    assert [claim.job.uuid for claim in claims] == ["a1", "b1", "d1"]
    assert store.claim_waiting(worker(queues=()), 3, LEASE_S) == []


def test_no_more_are_claimed_than_asked_for(store: QueueStore) -> None:
    store.apply([write for number in range(5) for write in ticketed(f"a{number}")])
    assert len(store.claim_waiting(worker(), 2, LEASE_S)) == 2
    assert store.claim_waiting(worker(), 0, LEASE_S) == []


def test_young_tickets_are_left_to_their_messages(store: QueueStore) -> None:
    store.apply(ticketed("a1"))
    assert store.claim_waiting(worker(), 9, LEASE_S, older_than_s=3600.0) == []
    assert len(store.claim(worker(), ["a1"], LEASE_S)) == 1


def test_a_worker_gets_jobs_of_its_own_user(store: QueueStore) -> None:
    store.apply([*ticketed("a1", user="you"), *ticketed("b1", user="me")])
    assert store.claim(worker(user="me"), ["a1"], LEASE_S) == []
    assert list(_claimed(store)) == ["b1"]
    everyone = worker("w2", any_user=True)
    assert [claim.job.uuid for claim in store.claim_waiting(everyone, 9, LEASE_S)] == ["a1"]


def test_a_job_without_a_ticket_is_nobodys(store: QueueStore) -> None:
    store.apply([queued("a1", user="me")])
    assert store.claim(worker(), ["a1"], LEASE_S) == []
    assert not store.withdraw("a1")


def test_a_job_that_has_ended_is_not_claimed(store: QueueStore) -> None:
    store.apply([*ticketed("a1"), ended("a1")])
    store.apply(ticketed("a1"))
    assert store.claim(worker(), ["a1"], LEASE_S) == []


def test_a_ticket_made_twice_is_one(store: QueueStore) -> None:
    store.apply(ticketed("a1"))
    assert _claimed(store) == {"a1": 1}
    store.apply(ticketed("a1"))
    assert _claimed(store, "w2") == {}


def test_many_processes_at_once_never_get_the_same_ticket(open_store: Callable[[], QueueStore]) -> None:
    store = open_store()
    uuids = {f"job-{number:04}" for number in range(400)}
    store.apply([write for uuid in sorted(uuids) for write in ticketed(uuid)])
    script = str(Path(__file__).with_name("claiming_process.py"))
    processes = [
        subprocess.Popen(
            [sys.executable, script, store.url, f"w{number}", "3"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": python_path(REPOSITORY)},
        )
        for number in range(4)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    lines = [line for process in processes for line in process.communicate("go\n")[0].split("\n") if line]
    assert sorted(lines) == [f"{uuid} 1" for uuid in sorted(uuids)]
    holders = {holding.uuid: holding.worker for holding in store.holdings()}
    assert holders.keys() == uuids


# -- leases


def test_a_lease_runs_out_by_the_clock_of_the_store(store: QueueStore) -> None:
    store.apply([*ticketed("a1"), *ticketed("b1")])
    store.claim(worker(), ["a1"], 0.001)
    store.claim(worker(), ["b1"], LEASE_S)
    while not _is_expired(store, "a1"):
        time.sleep(0.002)
    assert not _is_expired(store, "b1")


def test_a_renewed_lease_goes_on(store: QueueStore) -> None:
    store.apply(ticketed("a1"))
    store.claim(worker(), ["a1"], 0.001)
    while not _is_expired(store, "a1"):
        time.sleep(0.002)
    renewal = store.renew(worker(), {"a1": 1}, LEASE_S)
    assert (renewal.fenced, renewal.cancelled) == (frozenset(), frozenset())
    assert not _is_expired(store, "a1")


def test_a_lease_that_ran_out_is_held_until_someone_takes_it_back(store: QueueStore) -> None:
    store.apply(ticketed("a1"))
    store.claim(worker(), ["a1"], 0.0)
    assert store.claim(worker("w2"), ["a1"], LEASE_S) == []


def test_a_worker_learns_what_it_holds_no_more(store: QueueStore) -> None:
    store.apply([write for uuid in ("a1", "b1", "c1", "d1") for write in ticketed(uuid)])
    held = _claimed(store)
    store.take_back("a1", 1)
    store.apply([begun("b1", 1), done("b1", 1)])
    store.take_back("c1", 1)
    assert [claim.fence for claim in store.claim(worker("w2"), ["c1"], LEASE_S)] == [2]
    assert store.renew(worker(), held, LEASE_S).fenced == {"a1", "b1", "c1"}
    assert store.renew(worker("w2"), {"c1": 2, "unknown": 1}, LEASE_S).fenced == {"unknown"}


def test_a_worker_learns_what_is_to_end(store: QueueStore) -> None:
    store.apply([*ticketed("a1"), *ticketed("b1")])
    held = _claimed(store)
    store.apply([begun("a1", 1), CancelAsked("a1", NOON_US, "someone")])
    assert store.renew(worker(), held, LEASE_S).cancelled == {"a1"}


def test_holdings_tell_the_attempt(store: QueueStore) -> None:
    store.apply([*ticketed("a1"), *ticketed("b1")])
    store.claim(worker("w7"), ["a1"], LEASE_S)
    assert [(each.uuid, each.fence, each.worker, each.attempt) for each in store.holdings()] == [
        ("a1", 1, "w7", None)
    ]
    start = begun("a1", 1)
    store.apply([start])
    assert [each.attempt for each in store.holdings()] == [start.attempt]


# -- fences


def test_a_worker_writes_under_its_fence(store: QueueStore) -> None:
    store.apply(ticketed("a1"))
    _claimed(store)
    store.apply([begun("a1", 1), under(1, samples("a1", 0, 2))])
    assert store.find("a1").status is Status.RUNNING
    store.apply([under(1, samples("a1", 2, 1)), under(1, threads("a1"))])
    store.apply([done("a1", 1)])
    record = store.find("a1")
    assert record.status is Status.SUCCESS
    assert record.attempt is not None
    assert record.attempt.number == 1
    assert [index for index, _ in store.samples("a1")] == [0, 1, 2]
    assert store.details("a1") == threads("a1").details
    assert store.holdings() == []


@pytest.mark.parametrize("fence", [0, 1])
def test_what_comes_under_an_older_fence_is_ignored(store: QueueStore, fence: int) -> None:
    store.apply(ticketed("a1"))
    _claimed(store)
    store.apply([begun("a1", 1)])
    store.take_back("a1", 1)
    _claimed(store, "w2")
    for write in (begun("a1", fence), under(fence, samples("a1", 0, 3)), under(fence, threads("a1"))):
        store.apply([write])
    store.apply([done("a1", fence, Status.FAILED)])
    store.apply([begun("a1", fence), under(fence, samples("a1", 0, 3)), done("a1", fence, Status.FAILED)])
    assert store.find("a1").status is Status.QUEUED
    assert (store.samples("a1"), store.details("a1")) == ([], Details())
    store.apply([begun("a1", 2), under(2, samples("a1", 0, 1)), done("a1", 2)])
    record = store.find("a1")
    assert (record.status, len(store.samples("a1"))) == (Status.SUCCESS, 1)
    assert store.statistics(HistoryQuery()).overall.by_status == {"success": 1}


def test_samples_that_follow_each_other_stop_where_the_job_was_taken_back(store: QueueStore) -> None:
    store.apply(ticketed("a1"))
    _claimed(store)
    store.apply([begun("a1", 1), under(1, samples("a1", 0, 1))])
    store.apply([under(1, samples("a1", 1, 1)), under(1, threads("a1"))])
    store.take_back("a1", 1)
    store.apply([under(1, samples("a1", 2, 1))])
    store.apply([under(1, threads("a1", cpu_usec=99, at_us=NOON_US + 5))])
    assert (store.samples("a1"), store.details("a1")) == ([], Details())
    _claimed(store, "w2")
    store.apply([begun("a1", 2)])
    store.apply([under(1, samples("a1", 3, 1)), under(1, threads("a1", cpu_usec=98, at_us=NOON_US + 6))])
    assert (store.samples("a1"), store.details("a1")) == ([], Details())


def test_of_writes_under_several_fences_the_newest_count(store: QueueStore) -> None:
    """As a journal brings them in after an outage."""
    store.apply(ticketed("a1"))
    _claimed(store)
    store.take_back("a1", 1)
    _claimed(store, "w2")
    store.apply(
        [
            begun("a1", 1),
            under(1, samples("a1", 0, 5)),
            done("a1", 1, Status.FAILED),
            begun("a1", 2),
            under(2, samples("a1", 0, 2)),
            done("a1", 2),
        ]
    )
    assert store.find("a1").status is Status.SUCCESS
    assert len(store.samples("a1")) == 2


def test_nothing_counts_while_nobody_holds_a_job_that_was_taken_back(store: QueueStore) -> None:
    store.apply(ticketed("a1"))
    _claimed(store)
    store.apply([begun("a1", 1)])
    store.take_back("a1", 1)
    store.apply([begun("a1", 1), done("a1", 1, Status.CANCELLED)])
    assert store.find("a1").status is Status.QUEUED
    assert _claimed(store, "w2") == {"a1": 2}


def test_success_is_never_run_again(store: QueueStore) -> None:
    store.apply(ticketed("a1"))
    _claimed(store)
    store.apply([begun("a1", 1), done("a1", 1)])
    assert store.take_back("a1", 1) is None
    store.apply(ticketed("a1"))
    assert _claimed(store, "w2") == {}
    assert store.find("a1").status is Status.SUCCESS


def test_jobs_without_tickets_know_no_fences(store: QueueStore) -> None:
    store.apply([queued("a1"), started("a1"), samples("a1", 0, 2)])
    store.apply([ended("a1")])
    assert store.find("a1").status is Status.SUCCESS


def test_a_fenced_store_writes_under_what_it_holds(store: QueueStore) -> None:
    store.apply([*ticketed("a1"), *ticketed("b1"), queued("c1")])
    fenced = FencedStore(store)
    for uuid, fence in _claimed(store).items():
        fenced.hold(uuid, fence)
    fenced.drop("b1")
    for uuid in ("a1", "b1", "c1"):
        fenced.apply([started(uuid), samples(uuid, 0, 2), threads(uuid), ended(uuid)])
    assert [fenced.find(uuid).status for uuid in ("a1", "b1", "c1")] == [
        Status.SUCCESS,
        Status.QUEUED,
        Status.SUCCESS,
    ]
    assert len(fenced.samples("a1")) == 2


def test_attempts_are_numbered_by_their_fence(store: QueueStore) -> None:
    store.apply(ticketed("a1"))
    _claimed(store)
    store.take_back("a1", 1)
    fenced = FencedStore(store)
    (claim,) = fenced.claim(worker("w2"), ["a1"], LEASE_S)
    fenced.hold("a1", claim.fence)
    fenced.apply([started("a1")])
    record = fenced.find("a1")
    assert record.attempt is not None
    assert record.attempt.number == 2


# -- taken back, given back, withdrawn


def test_what_was_taken_back_is_as_if_it_had_not_begun(store: QueueStore) -> None:
    store.apply(ticketed("a1"))
    _claimed(store)
    before = store.find("a1")
    start = begun("a1", 1)
    store.apply([start, under(1, samples("a1", 0, 500)), under(1, threads("a1"))])
    assert store.take_back("a1", 1) is Status.QUEUED
    assert store.find("a1") == before
    assert (store.samples("a1"), store.details("a1")) == ([], Details())
    (claim,) = store.claim(worker("w2"), ["a1"], LEASE_S)
    assert (claim.fence, claim.former, claim.lost_attempt) == (2, FormerWorker("w1"), start.attempt)
    assert store.check().ok


def test_who_lost_a_job_is_known_while_it_waits_again(store: QueueStore) -> None:
    store.apply([*ticketed("a1"), *ticketed("a2")])
    fences = _claimed(store, "w1")
    assert store.former_workers(["a1", "a2"]) == {}
    store.take_back("a1", fences["a1"])
    assert store.former_workers(["a1", "a2", "unknown"]) == {"a1": FormerWorker("w1")}
    store.claim(worker("w2"), ["a1"], LEASE_S)
    assert store.former_workers(["a1"]) == {}
    assert store.former_workers([]) == {}


def test_who_gave_a_job_back_after_it_had_begun_is_known_to_the_next_worker(store: QueueStore) -> None:
    store.apply([*ticketed("a1"), *ticketed("a2")])
    fences = _claimed(store, "w1")
    store.apply([begun("a1", fences["a1"])])
    store.give_back("w1", fences)
    assert store.former_workers(["a1", "a2"]) == {"a1": FormerWorker("w1", gave_back=True)}
    first, second = store.claim(worker("w2"), ["a1", "a2"], LEASE_S)
    assert (first.fence, first.former, first.lost_attempt) == (2, FormerWorker("w1", gave_back=True), None)
    assert second.former is None


def test_only_one_of_those_who_take_a_ticket_back_has_done_it(store: QueueStore) -> None:
    store.apply([*ticketed("a1"), *ticketed("b1", retry_lost=RetryLost.NEVER)])
    _claimed(store)
    assert [store.take_back("a1", 1), store.take_back("b1", 1)] == [Status.QUEUED, Status.LOST]
    assert [store.take_back("a1", 1), store.take_back("b1", 1)] == [None, None]
    assert store.former_workers(["a1"]) == {"a1": FormerWorker("w1")}


def test_an_old_fence_takes_nothing_back(store: QueueStore) -> None:
    store.apply(ticketed("a1"))
    _claimed(store)
    store.take_back("a1", 1)
    _claimed(store, "w2")
    store.apply([begun("a1", 2)])
    assert store.take_back("a1", 1) is None
    assert [each.worker for each in store.holdings()] == ["w2"]


def test_a_job_that_must_not_run_twice_is_lost_with_its_worker(store: QueueStore) -> None:
    store.apply(ticketed("a1", retry_lost=RetryLost.NEVER))
    _claimed(store)
    store.apply([begun("a1", 1)])
    assert store.take_back("a1", 1) is Status.LOST
    record = store.find("a1")
    assert record.outcome is not None
    assert (record.outcome.reason, "w1" in str(record.outcome.error)) == ("lost", True)
    assert _claimed(store, "w2") == {}
    assert store.statistics(HistoryQuery()).overall.by_status == {"lost": 1}


def test_lost_gives_way_to_the_true_outcome_under_the_same_fence(store: QueueStore) -> None:
    store.apply(ticketed("a1", retry_lost=RetryLost.NEVER))
    _claimed(store)
    store.take_back("a1", 1)
    store.apply([ended("a1", Status.FAILED)])
    assert store.find("a1").status is Status.LOST
    store.apply([done("a1", 1)])
    assert store.find("a1").status is Status.SUCCESS
    assert store.statistics(HistoryQuery()).overall.by_status == {"success": 1}


def test_a_job_that_takes_its_workers_down_is_given_up(store: QueueStore) -> None:
    store.apply(ticketed("a1", most_deliveries=2))
    _claimed(store)
    assert store.take_back("a1", 1) is Status.QUEUED
    _claimed(store)
    assert store.take_back("a1", 2) is Status.LOST


def test_what_was_given_back_counts_for_nothing(store: QueueStore) -> None:
    store.apply(ticketed("a1", most_deliveries=1, retry_lost=RetryLost.NEVER))
    for fence in (1, 2, 3):
        assert _claimed(store) == {"a1": fence}
        store.give_back("w1", {"a1": fence})
    (claim,) = store.claim_waiting(worker("w2"), 9, LEASE_S, older_than_s=0.0)
    assert (claim.fence, claim.former) == (4, None)


def test_a_job_that_was_ended_to_be_given_back_starts_over(store: QueueStore) -> None:
    store.apply([*ticketed("a1"), *ticketed("b1", retry_lost=RetryLost.NEVER)])
    held = _claimed(store)
    store.apply([begun("a1", 1), under(1, samples("a1", 0, 3)), begun("b1", 1)])
    store.give_back("w1", held)
    assert (store.find("a1").status, store.samples("a1")) == (Status.QUEUED, [])
    assert store.find("b1").status is Status.LOST


def test_only_who_holds_a_ticket_gives_it_back(store: QueueStore) -> None:
    store.apply(ticketed("a1"))
    _claimed(store)
    store.give_back("w2", {"a1": 1})
    store.give_back("w1", {"a1": 2})
    assert [each.worker for each in store.holdings()] == ["w1"]


def test_a_waiting_job_can_be_withdrawn(store: QueueStore) -> None:
    store.apply(ticketed("a1"))
    assert store.withdraw("a1")
    record = store.find("a1")
    assert record.outcome is not None
    assert (record.status, record.outcome.reason) == (Status.CANCELLED, "not-started")
    assert not store.withdraw("a1")
    assert _claimed(store) == {}
    assert store.backlog() == []


def test_a_job_that_came_back_can_be_withdrawn(store: QueueStore) -> None:
    store.apply(ticketed("a1"))
    _claimed(store)
    store.take_back("a1", 1)
    assert store.withdraw("a1")
    assert store.find("a1").status is Status.CANCELLED


def test_a_job_that_someone_holds_is_not_withdrawn(store: QueueStore) -> None:
    store.apply(ticketed("a1"))
    _claimed(store)
    assert not store.withdraw("a1")
    assert store.find("a1").status is Status.QUEUED


def test_a_job_that_someone_wants_to_end_is_not_begun_again(store: QueueStore) -> None:
    store.apply([write for uuid in ("a1", "b1", "c1") for write in ticketed(uuid)])
    held = {uuid: fence for uuid, fence in _claimed(store).items() if uuid != "c1"}
    store.take_back("c1", 1)
    store.apply([CancelAsked(uuid, NOON_US, "someone") for uuid in ("a1", "b1", "c1")])
    assert store.take_back("a1", 1) is Status.CANCELLED
    store.give_back("w1", held)
    assert _claimed(store, "w2") == {}
    assert set(store.states(["a1", "b1", "c1"]).values()) == {Status.CANCELLED}
    assert store.cancel_requests() == {}


def test_what_is_unknown_cannot_be_taken_back(store: QueueStore) -> None:
    for question in (lambda: store.take_back("x", 1), lambda: store.withdraw("x")):
        with pytest.raises(UnknownJob):
            question()


# -- one after another


def test_a_job_after_another_waits_for_its_success(store: QueueStore) -> None:
    store.apply([*ticketed("a1"), *ticketed("b1", after="a1", queue="r")])
    assert store.claim(worker(), ["b1"], LEASE_S) == []
    assert _claimed(store) == {"a1": 1}
    assert store.release_after("a1") == []
    store.apply([begun("a1", 1), done("a1", 1)])
    assert store.released_by(["a1", "unknown"]) == [("b1", "r")]
    assert store.released_by([]) == []
    assert store.release_after("a1") == [("b1", "r")]
    assert len(store.claim(worker(), ["b1"], LEASE_S)) == 1
    assert store.release_after("a1") == []


def test_jobs_after_one_that_failed_are_cancelled_and_those_after_them(store: QueueStore) -> None:
    store.apply(ticketed("j0"))
    store.apply([write for n in range(1, 50) for write in ticketed(f"j{n}", after=f"j{n - 1}")])
    _claimed(store)
    store.apply([begun("j0", 1), done("j0", 1, Status.FAILED, exit_code=3)])
    assert store.release_after("j0") == []
    records = [store.find(f"j{number}") for number in range(1, 50)]
    assert {record.status for record in records} == {Status.CANCELLED}
    assert {record.outcome.reason for record in records if record.outcome is not None} == {"blocked"}
    assert "j48" in str(records[-1].outcome and records[-1].outcome.error)
    assert store.backlog() == []
    assert store.statistics(HistoryQuery()).overall.by_status == {"failed": 1, "cancelled": 49}


def test_jobs_after_one_that_was_withdrawn_are_cancelled(store: QueueStore) -> None:
    store.apply([*ticketed("a1"), *ticketed("b1", after="a1"), *ticketed("c1", after="b1")])
    assert store.withdraw("b1")
    assert store.states(["a1", "b1", "c1"]) == {
        "a1": Status.QUEUED,
        "b1": Status.CANCELLED,
        "c1": Status.CANCELLED,
    }


def test_a_job_after_one_that_has_ended_already_knows_it(store: QueueStore) -> None:
    store.apply([queued("a1"), ended("a1"), queued("b1"), ended("b1", Status.FAILED)])
    store.apply([*ticketed("c1", after="a1"), *ticketed("d1", after="b1"), *ticketed("e1", after="d1")])
    assert _claimed(store) == {"c1": 1}
    assert store.states(["d1", "e1"]) == {"d1": Status.CANCELLED, "e1": Status.CANCELLED}


def test_several_may_come_after_one(store: QueueStore) -> None:
    store.apply([write for uuid in ("a1", "b1", "c1") for write in ticketed(uuid, after="z1")])
    store.apply(ticketed("z1"))
    assert _claimed(store) == {"z1": 1}
    store.apply([done("z1", 1)])
    assert store.release_after("z1") == [("a1", "q"), ("b1", "q"), ("c1", "q")]
    assert len(_claimed(store)) == 3


# -- what is told


def test_workers_are_known_by_their_heartbeats(store: QueueStore) -> None:
    before_us = store.now_us()
    first, second = worker("w1", broker="redis://host"), worker("w2", facts={"k": [1]})
    store.renew(first, {}, LEASE_S)
    store.renew(second, {}, LEASE_S)
    store.renew(worker("w1", running=2), {}, LEASE_S)
    known = {each.name: each for each in store.workers()}
    assert (known["w1"].running, known["w1"].broker, known["w2"].facts) == (2, "", {"k": [1]})
    assert all(before_us <= each.seen_at_us <= store.now_us() for each in known.values())
    assert [each.name for each in store.workers()] == ["w1", "w2"]
    store.forget_worker("w1")
    assert [each.name for each in store.workers()] == ["w2"]


def test_the_backlog_tells_how_each_queue_stands(store: QueueStore) -> None:
    store.apply([*ticketed("a1"), *ticketed("b1"), *ticketed("c1", queue="r"), *ticketed("d1", after="a1")])
    store.claim(worker(), ["a1"], LEASE_S)
    store.claim(worker(), ["c1"], LEASE_S)
    standing = {each.queue: (each.waiting, each.held, each.oldest_waiting_us > 0) for each in store.backlog()}
    assert standing == {"q": (1, 1, True), "r": (0, 1, False)}


def test_waiting_tickets_are_listed_in_pages_with_their_position(store: QueueStore) -> None:
    for uuid, queue in (("a1", "q"), ("b1", "r"), ("c1", "q"), ("e1", "q")):
        store.apply(ticketed(uuid, queue=queue))
    store.apply(ticketed("d1", after="a1"))
    first = store.tickets(TicketQuery(limit=3))
    rest = store.tickets(TicketQuery(limit=3, after=first[-1].position_key))
    found = {each.uuid: (each.queue, each.position) for each in (*first, *rest)}
    assert found == {"a1": ("q", 1), "b1": ("r", 1), "c1": ("q", 2), "e1": ("q", 3), "d1": ("q", None)}
    assert [(each.after, each.is_ready) for each in rest if each.uuid == "d1"] == [("a1", False)]
    assert [each.uuid for each in store.tickets(TicketQuery(queue="r"))] == ["b1"]
    assert store.tickets(TicketQuery(user="nobody")) == []


def test_held_tickets_name_their_worker_and_lease(store: QueueStore) -> None:
    store.apply([*ticketed("a1"), *ticketed("b1")])
    store.claim(worker("w1"), ["b1"], LEASE_S)
    (held,) = store.tickets(TicketQuery(is_held=True))
    assert (held.uuid, held.worker, held.deliveries, held.position) == ("b1", "w1", 1, None)
    assert held.lease_until_us is not None
    assert held.lease_until_us > store.now_us()
    assert store.tickets(TicketQuery(is_held=True, after=held.position_key)) == []
    assert [each.uuid for each in store.tickets(TicketQuery())] == ["a1"]


def test_states_of_many_jobs_come_at_once(store: QueueStore) -> None:
    store.apply([*ticketed("a1"), queued("b1"), ended("b1")])
    assert store.states(["a1", "b1", "nobody"]) == {"a1": Status.QUEUED, "b1": Status.SUCCESS}
    assert store.states([]) == {}


def test_a_ticket_goes_with_the_end_of_its_job(store: QueueStore) -> None:
    """What it holds is not redacted."""
    store.apply(ticketed("a1"))
    _claimed(store)
    store.apply([begun("a1", 1), done("a1", 1)])
    assert (store.backlog(), store.holdings()) == ([], [])


def test_of_all_that_is_held_only_what_is_asked_for_is_reported(store: QueueStore) -> None:
    for name in ("one", "two", "three"):
        store.apply(ticketed(name))
        store.claim(_on("here", "me"), [name], LEASE_S)
    store.apply(ticketed("waits"))
    assert sorted(each.uuid for each in store.holdings(of=["one", "three", "waits", "unknown"])) == [
        "one",
        "three",
    ]
    assert store.holdings(of=[]) == []


def test_a_worker_is_shown_its_own_its_hosts_and_what_ran_out_of_all_that_is_held(
    store: QueueStore,
) -> None:
    for name, host in (("me", "here"), ("beside", "here"), ("far", "there"), ("late", "there")):
        lease_s = 0.0 if name == "late" else LEASE_S
        store.apply(ticketed(f"{name}1"))
        store.renew(_on(host, name), {}, lease_s)
        store.claim(_on(host, name), [f"{name}1"], lease_s)
    while not _is_expired(store, "late1"):
        time.sleep(0.01)
    near = store.holdings(near=_on("here", "me"))
    assert sorted((each.uuid, each.worker) for each in near) == [
        ("beside1", "beside"),
        ("late1", "late"),
        ("me1", "me"),
    ]
    assert {each.uuid: each.expired_us > 0 for each in near} == {
        "beside1": False,
        "late1": True,
        "me1": False,
    }


def test_the_workers_of_one_host_can_be_asked_for(store: QueueStore) -> None:
    for name, host in (("w1", "here"), ("w2", "there"), ("w3", "here")):
        store.renew(_on(host, name), {}, LEASE_S)
    assert {each.name for each in store.workers(host="here")} == {"w1", "w3"}
    assert store.workers(host="nowhere") == []


def test_sooner_or_later_a_worker_learns_how_many_there_are(store: QueueStore) -> None:
    store.renew(worker("w2"), {}, LEASE_S)
    counts = {store.renew(worker("w1"), {}, LEASE_S).workers for _ in range(400)}
    assert counts == {0, 2}


# -- labels


def _uuids(claims: list[Claim]) -> list[str]:
    return [claim.job.uuid for claim in claims]


def test_a_worker_claims_only_jobs_with_its_label_and_one_without_only_those_without(
    store: QueueStore,
) -> None:
    labels = {"a1": "", "a2": "windows", "a3": "Windows", "a4": "gpu", "a5": ""}
    for uuid, label in labels.items():
        store.apply(ticketed(uuid, label=label))
    assert _uuids(store.claim_waiting(worker("w1", labels=("windows",)), 10, LEASE_S)) == ["a2"]
    assert _uuids(store.claim_waiting(worker("w2"), 10, LEASE_S)) == ["a1", "a5"]
    assert store.claim_waiting(worker("w3", labels=("linux",)), 10, LEASE_S) == []
    assert _uuids(store.claim_waiting(worker("w4", labels=("gpu", "Windows")), 10, LEASE_S)) == ["a3", "a4"]


def test_a_job_that_is_named_is_claimed_only_by_a_worker_with_its_label(store: QueueStore) -> None:
    store.apply([*ticketed("a1", label="windows"), *ticketed("a2")])
    assert _uuids(store.claim(worker("w1"), ["a1", "a2"], LEASE_S)) == ["a2"]
    assert store.find("a1").status is Status.QUEUED
    assert _uuids(store.claim(worker("w2", labels=("windows",)), ["a1"], LEASE_S)) == ["a1"]


def test_a_job_with_a_label_waits_for_another_worker_with_it_when_its_own_is_lost(
    store: QueueStore,
) -> None:
    store.apply(ticketed("a1", label="my label/é"))
    [claim] = store.claim_waiting(worker("w1", labels=("my label/é",)), 1, LEASE_S)
    store.take_back("a1", claim.fence)
    assert store.claim_waiting(worker("w2"), 1, LEASE_S) == []
    assert _uuids(store.claim_waiting(worker("w3", labels=("my label/é",)), 1, LEASE_S)) == ["a1"]


def test_the_backlog_tells_jobs_of_each_label_apart(store: QueueStore) -> None:
    store.apply([*ticketed("a1", label="gpu"), *ticketed("a2", label="gpu"), *ticketed("a3")])
    found = {queue_and_label(one.queue): one.waiting for one in store.backlog()}
    assert found == {("q", "gpu"): 2, ("q", ""): 1}


def test_a_worker_is_known_with_its_labels(store: QueueStore) -> None:
    store.renew(worker("w1", labels=("gpu",)), {}, LEASE_S)
    assert [one.labels for one in store.workers()] == [("gpu",)]


def test_labels_cost_a_claim_no_other_query(store: QueueStore) -> None:
    """The label is part of the indexed name under which a ticket waits."""
    assert worker("w1", queues=("q", "r"), labels=("gpu",)).routes == ("q:gpu", "r:gpu")
    assert worker("w1", queues=("q",)).routes == ("q",)
