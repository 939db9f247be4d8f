"""Tickets that a run's driver takes back: those of places that are gone, not those of others."""

from collections.abc import Collection

from joblens.agent.queue.lost_workers import ALLOCATION_ID, Journals, RunLostTickets
from joblens.agent.queue.store_client import StoreWatch
from joblens.model.delivery import Holding, WorkerInfo
from joblens.model.jobs.job import Status
from joblens.probes.host.machine_load import read_host

LEASE_S = 30.0


class Deliveries:
    """As much of them as is asked for here."""

    def __init__(self, holdings: list[Holding], places: dict[str, str]) -> None:
        self._holdings = holdings
        self._workers = [
            WorkerInfo(
                name=name,
                host="elsewhere",
                pid=1,
                user="me",
                queues=(),
                concurrency=1,
                facts={ALLOCATION_ID: place} if place else {},
            )
            for name, place in places.items()
        ]
        self.at_us = 1
        self.taken: list[str] = []

    def holdings(self, *, of: Collection[str]) -> list[Holding]:
        return [one for one in self._holdings if one.uuid in of]

    def workers(self) -> list[WorkerInfo]:
        return self._workers

    def now_us(self) -> int:
        return self.at_us

    def take_back(self, uuid: str, fence: int) -> Status | None:
        self.taken.append(uuid)
        return Status.QUEUED


def lost() -> RunLostTickets:
    return RunLostTickets(StoreWatch(LEASE_S, 2.0), read_host(), Journals())


def held(uuid: str, worker: str, expired_us: int = 0) -> Holding:
    return Holding(uuid, 1, worker, expired_us)


def test_what_workers_of_a_place_that_is_gone_hold_is_taken_back() -> None:
    deliveries = Deliveries(
        [held("a", "w1"), held("b", "w2"), held("c", "w3"), held("d", "w1")],
        {"w1": "12", "w2": "12_3", "w3": "120"},
    )
    lost().take_back_of_allocation("12", {"c"}, {"a", "b", "c"}, deliveries)  # type: ignore[arg-type]
    assert deliveries.taken == ["a", "b"], "not c, which another place has, nor d, of another run"


def test_of_workers_that_say_no_place_those_are_taken_back_that_the_cluster_names() -> None:
    deliveries = Deliveries([held("a", "w1"), held("b", "w1")], {"w1": ""})
    lost().take_back_of_allocation("task", {"b"}, {"a", "b"}, deliveries)  # type: ignore[arg-type]
    assert deliveries.taken == ["b"]


def test_a_lease_that_ran_out_counts_only_for_who_has_watched_the_store_for_a_whole_one() -> None:
    deliveries = Deliveries([held("a", "w1", expired_us=5)], {"w1": "12"})
    tickets = lost()
    for at_s in range(0, int(LEASE_S) + 1, 2):
        deliveries.at_us = 1 + at_s * 1_000_000
        assert tickets.take_back_expired({"a"}, deliveries) == 0  # type: ignore[arg-type]
    deliveries.at_us += 2_000_000
    assert tickets.take_back_expired({"a"}, deliveries) == 1  # type: ignore[arg-type]


def test_a_gap_in_the_watch_begins_it_again() -> None:
    deliveries = Deliveries([held("a", "w1", expired_us=5)], {"w1": "12"})
    tickets = lost()
    tickets.take_back_expired({"a"}, deliveries)  # type: ignore[arg-type]
    deliveries.at_us += 60_000_000
    assert tickets.take_back_expired({"a"}, deliveries) == 0  # type: ignore[arg-type]
