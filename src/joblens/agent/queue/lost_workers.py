"""Looks for tickets that nobody works on: those of workers that are gone are taken back, for somebody to
take; those that the store believes to be this worker's own, and that it knows nothing of, are given back."""

import time
from collections.abc import Sequence

from msgspec import Struct

from joblens.agent.queue.leases import Keeper, TicketKeeping
from joblens.agent.queue.leftovers import Leftovers
from joblens.agent.queue.lost_claims import is_lost, workers_ended_here
from joblens.agent.queue.store_client import AsyncStoreClient
from joblens.agent.queue.store_watch import StoreWatch
from joblens.model.delivery import Holding, WorkerInfo
from joblens.model.jobs.job import Status
from joblens.ports.deliveries import Deliveries
from joblens.probes.host.machine_load import HostFacts

_LOOKS_A_LEASE = 6
_LEAST_S, _MOST_S = 0.5, 5.0
_LEAST_LOOKS_A_LEASE = 3  # with fewer, who looks could not tell that the store was there all the time
_LOOKS_A_SECOND = 100  # of all workers together, as far as their leases allow it


def look_every_s(lease_s: float, workers: int = 0) -> float:
    """Where there are many workers each looks less often: together they see soon enough what ran out."""
    usual_s = min(_MOST_S, max(_LEAST_S, lease_s / _LOOKS_A_LEASE))
    return max(usual_s, min(lease_s / _LEAST_LOOKS_A_LEASE, workers / _LOOKS_A_SECOND))


class Journals:
    """What waits beside the store for it to be there. This one has none."""

    def bring_in_own(self) -> None:
        """What this process has kept, if anything. Nobody else may write anything for hours."""

    def bring_in_left_behind(self) -> bool:
        """What processes of this machine that are gone have kept. False: something is left."""
        return True


class _Found(Struct):
    """What a look has brought."""

    queued: int = 0
    lost: int = 0
    workers: set[str] = set()
    strays: int = 0
    is_more_to_come: bool = False  # leases ran out that cannot be judged yet


class LostWorkers:
    """Timed, on the loop; looks on the desk's thread."""

    def __init__(  # noqa: PLR0913 - what it works with
        self,
        info: WorkerInfo,
        host: HostFacts,
        desk: AsyncStoreClient,
        keeping: TicketKeeping,
        keeper: Keeper,
        watch: StoreWatch,
        leftovers: Leftovers,
        journals: Journals,
        *,
        lease_s: float,
    ) -> None:
        self._info = info
        self._me = info.name
        self._host = host
        self._desk = desk
        self._keeping = keeping
        self._keeper = keeper
        self._watch = watch
        self._lease_s = lease_s
        self._leftovers = leftovers
        self._journals = journals
        self.is_looking = False
        self._next_look_s = 0.0
        self.is_more_to_come = False

    def next_wake_s(self) -> float | None:
        return self._next_look_s

    def wake(self) -> None:
        pause_s = look_every_s(self._lease_s, self._keeping.workers)
        self._next_look_s = time.monotonic() + pause_s
        if not self.is_looking:
            self.is_looking = True
            self._desk.ask(self._look, self._has_looked, self._could_not_look)

    def _look(self, deliveries: Deliveries) -> _Found:
        found = _Found(workers=set())
        holdings = self._holdings(deliveries)
        self._journals.bring_in_own()  # now that the store answers
        found.strays = self._keeping.return_strays(holdings, deliveries)
        others = [one for one in holdings if one.worker != self._me]
        if not others:
            return found
        dead = workers_ended_here(deliveries.workers(host=self._info.host), self._host)
        if any(one.worker in dead for one in others):
            # It may have ended jobs whose outcome the store has not heard of.
            if not self._journals.bring_in_left_behind():
                dead = frozenset()  # then by their leases
            others = [one for one in self._holdings(deliveries) if one.worker != self._me]
        self._take_back(others, dead, deliveries, found)
        return found

    def _holdings(self, deliveries: Deliveries) -> list[Holding]:
        self._watch.answered(deliveries.now_us())
        holdings = deliveries.holdings(near=self._info)
        if any(one.worker != self._me for one in holdings):  # it may have hung in between
            self._watch.answered(deliveries.now_us())
        return holdings

    def _take_back(
        self, others: Sequence[Holding], dead: frozenset[str], deliveries: Deliveries, found: _Found
    ) -> None:
        for holding in others:
            if is_lost(holding, dead, may_judge=self._watch.may_judge):
                self._take_one_back(holding, deliveries, found)
                self._watch.answered(deliveries.now_us())  # it may have hung in between
            elif holding.expired_us > 0:
                found.is_more_to_come = True

    def _take_one_back(self, holding: Holding, deliveries: Deliveries, found: _Found) -> None:
        self._leftovers.take_away(holding.uuid, holding.attempt)
        status = deliveries.take_back(holding.uuid, holding.fence)
        if status is None:
            return  # somebody else has done it, or it has ended after all
        found.workers.add(holding.worker)
        if status is Status.QUEUED:
            found.queued += 1
        elif status.is_final:
            found.lost += status is Status.LOST
            self._keeping.release_after({holding.uuid}, deliveries)

    def _has_looked(self, found: _Found) -> None:
        self.is_looking = False
        self.is_more_to_come = found.is_more_to_come
        if found.workers:
            names = ", ".join(sorted(found.workers))
            ended = f", {found.lost} ended as lost" if found.lost else ""
            self._keeper.note(f"worker {names} is gone: {found.queued} of its jobs queued again{ended}")
        if found.strays:
            self._keeper.note(f"{found.strays} of its own that it did not know of given back to the store")
        if found.queued or found.strays:
            self._keeper.look_now()

    def _could_not_look(self) -> None:
        self.is_looking = False
