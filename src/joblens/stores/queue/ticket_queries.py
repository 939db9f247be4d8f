"""Queue queries: ports.store.Deliveries of a store in a database."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from joblens.model.clusters.placement import NodeCapacity
    from joblens.model.delivery import (
        Backlog,
        Claim,
        FormerWorker,
        Holding,
        Renewal,
        TicketQuery,
        TicketStanding,
        WorkerInfo,
    )
    from joblens.model.jobs.job import Status
    from joblens.stores.queue.tickets import TicketBook

T = TypeVar("T")


class TicketQueries:
    """Queries of workers. Imports its parts on demand, so that running a job without a worker stays fast."""

    def _read(self, work: Callable[[TicketBook], T]) -> T:
        """Runs a read."""
        raise NotImplementedError

    def _change(self, work: Callable[[TicketBook], T], *, for_good: bool) -> T:
        """Runs `work` in one transaction, possibly repeatedly; `for_good`: durable on return."""
        raise NotImplementedError

    def claim(
        self,
        worker: WorkerInfo,
        uuids: Sequence[str],
        lease_s: float,
        *,
        capacity: NodeCapacity | None = None,
    ) -> list[Claim]:
        from joblens.stores.queue.claims import claim_those

        if not uuids:
            return []
        return self._change(lambda book: claim_those(book, worker, uuids, lease_s, capacity), for_good=False)

    def claim_waiting(
        self,
        worker: WorkerInfo,
        most: int,
        lease_s: float,
        *,
        older_than_s: float = 0.0,
        capacity: NodeCapacity | None = None,
    ) -> list[Claim]:
        from joblens.stores.queue.claims import claim_oldest

        # First without a lock: usually there is nothing to do.
        if most <= 0 or not self._is_any_waiting(worker, older_than_s):
            return []
        return self._change(
            lambda book: claim_oldest(book, worker, most, lease_s, older_than_s, capacity), for_good=False
        )

    def _is_any_waiting(self, worker: WorkerInfo, older_than_s: float) -> bool:
        from joblens.stores.queue.claims import any_waiting

        return self._read(lambda book: any_waiting(book, worker, older_than_s))

    def renew(self, worker: WorkerInfo, held: Mapping[str, int], lease_s: float) -> Renewal:
        from joblens.stores.queue.claims import renew

        return self._change(lambda book: renew(book, worker, held, lease_s), for_good=False)

    def give_back(self, worker: str, held: Mapping[str, int]) -> None:
        from joblens.stores.queue.claims import give_back

        if held:
            self._change(lambda book: give_back(book, worker, held), for_good=True)

    def holdings(self, *, near: WorkerInfo | None = None, of: Collection[str] | None = None) -> list[Holding]:
        from joblens.stores.queue.claims import holdings

        if of is not None and not of:
            return []
        return self._read(lambda book: holdings(book, near, of))

    def take_back(self, uuid: str, fence: int) -> Status | None:
        from joblens.stores.queue.claims import take_back

        return self._change(lambda book: take_back(book, uuid, fence), for_good=True)

    def release_after(self, uuid: str) -> list[tuple[str, str]]:
        from joblens.stores.queue.claims import release_after

        return self._change(lambda book: release_after(book, uuid), for_good=True)

    def released_by(self, uuids: Sequence[str]) -> list[tuple[str, str]]:
        from joblens.stores.queue.claims import released_by

        return self._read(lambda book: released_by(book, uuids)) if uuids else []

    def withdraw(self, uuid: str) -> bool:
        from joblens.stores.queue.claims import withdraw

        return self._change(lambda book: withdraw(book, uuid), for_good=True)

    def workers(self, *, host: str | None = None) -> list[WorkerInfo]:
        from joblens.stores.queue.claims import workers

        return self._read(lambda book: workers(book, host))

    def forget_worker(self, name: str) -> None:
        self._change(lambda book: book.ask("forget_worker", name=name), for_good=False)

    def backlog(self) -> list[Backlog]:
        from joblens.stores.queue.claims import backlog

        return self._read(backlog)

    def tickets(self, query: TicketQuery) -> list[TicketStanding]:
        from joblens.stores.queue.claims import tickets

        return self._read(lambda book: tickets(book, query))

    def states(self, uuids: Sequence[str]) -> dict[str, Status]:
        from joblens.stores.queue.claims import states

        return self._read(lambda book: states(book, uuids)) if uuids else {}

    def former_workers(self, uuids: Sequence[str]) -> dict[str, FormerWorker]:
        from joblens.stores.queue.claims import former_workers

        return self._read(lambda book: former_workers(book, uuids)) if uuids else {}

    def now_us(self) -> int:
        return self._read(lambda book: book.now_us())
