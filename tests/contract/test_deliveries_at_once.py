"""Many workers at one store at the same time, some of which lose their leases: nothing is lost, nothing ends
twice, nobody waits for ever for the job before."""

import random
import threading
import time
from collections.abc import Callable
from typing import Any

from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Status
from tests.builders.tickets import LEASE_S, begun, done, ticketed, under, worker
from tests.builders.writes import samples

JOBS = 60
TIMEOUT_S = 60.0


class Crowd:
    """Threads, each with a store of its own. The first error of any of them is the test's."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def start(self, work: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - told by the test's own thread
                self.errors.append(error)

        self._threads.append(threading.Thread(target=guarded, daemon=True))
        self._threads[-1].start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(TIMEOUT_S)
        assert self.errors == []
        assert not any(thread.is_alive() for thread in self._threads)


def _work(store: Any, name: str, is_over: Callable[[], bool]) -> None:
    """Claims, begins, samples and ends jobs; now and then it is too slow for its lease, or dies of a job."""
    chance = random.Random(name)
    while not is_over():
        for claim in store.claim_waiting(worker(name), 3, 0.02 if chance.random() < 0.3 else LEASE_S):
            uuid, fence = claim.job.uuid, claim.fence
            store.apply([begun(uuid, fence), under(fence, samples(uuid, 0, 2))])
            if chance.random() < 0.2:
                store.renew(worker(name), {uuid: fence}, 0.01)
                continue  # never heard of again
            store.apply([under(fence, samples(uuid, 2, 2)), done(uuid, fence)])


def _take_back(store: Any, is_over: Callable[[], bool]) -> None:
    while not is_over():
        for holding in store.holdings():
            if holding.expired_us > 0:
                store.take_back(holding.uuid, holding.fence)
        time.sleep(0.01)


def _are_all_over(store: Any, uuids: list[str]) -> bool:
    states = store.states(uuids)
    return len(states) == len(uuids) and all(status.is_final for status in states.values())


def test_every_job_ends_once_though_workers_lose_their_leases(open_store: Callable[[], Any]) -> None:
    store, crowd = open_store(), Crowd()
    uuids = [f"job-{number:03}" for number in range(JOBS)]
    store.apply([write for uuid in uuids for write in ticketed(uuid, most_deliveries=1000)])
    deadline_s = time.monotonic() + TIMEOUT_S

    def is_over() -> bool:
        return time.monotonic() > deadline_s or bool(crowd.errors) or _are_all_over(store, uuids)

    for number in range(4):
        mine = open_store()
        crowd.start(lambda mine=mine, number=number: _work(mine, f"w{number}", is_over))  # type: ignore[misc]
    for _ in range(2):
        mine = open_store()
        crowd.start(lambda mine=mine: _take_back(mine, is_over))  # type: ignore[misc]
    crowd.join()
    assert store.statistics(HistoryQuery()).overall.by_status == {"success": JOBS}
    assert all(len(store.samples(uuid)) == 4 for uuid in uuids)
    assert (store.holdings(), store.backlog()) == ([], [])
    assert store.check().ok


def test_nobody_waits_for_a_job_that_ends_while_it_is_submitted(open_store: Callable[[], Any]) -> None:
    store, ender, crowd = open_store(), open_store(), Crowd()
    firsts = [f"first-{number:03}" for number in range(JOBS)]
    store.apply([write for uuid in firsts for write in ticketed(uuid)])
    fences = {claim.job.uuid: claim.fence for claim in store.claim_waiting(worker(), JOBS, LEASE_S)}
    together = threading.Barrier(2)

    def end() -> None:
        for number, uuid in enumerate(firsts):
            together.wait(TIMEOUT_S)
            ender.apply([done(uuid, fences[uuid], Status.FAILED if number % 3 == 0 else Status.SUCCESS)])

    def follow() -> None:
        for uuid in firsts:
            together.wait(TIMEOUT_S)
            store.apply(ticketed(f"after-{uuid}", after=uuid))

    crowd.start(end)
    crowd.start(follow)
    crowd.join()
    states = store.states([f"after-{uuid}" for uuid in firsts])
    failed = sum(number % 3 == 0 for number in range(JOBS))
    assert sum(status is Status.CANCELLED for status in states.values()) == failed
    assert len(store.claim_waiting(worker(), JOBS, LEASE_S)) == JOBS - failed
