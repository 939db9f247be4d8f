"""Tickets of a run whose workers are gone, taken back by the run's driver: on a cluster nobody else may be
there to do it. All on the thread that asks the store."""

from collections.abc import Collection, Iterable

from joblens.agent.queue.lost_claims import is_lost, workers_ended_here
from joblens.agent.queue.lost_workers import Journals
from joblens.agent.queue.store_watch import StoreWatch
from joblens.model.delivery import Holding, WorkerInfo
from joblens.ports.deliveries import Deliveries
from joblens.probes.host.machine_load import HostFacts

PLACE = "place"  # among the facts of a worker: the cluster's own id of where it runs


class RunLostTickets:
    def __init__(self, watch: StoreWatch, host: HostFacts, journals: Journals) -> None:
        self._watch = watch
        self._host = host
        self._journals = journals

    def take_back_expired(self, own: Collection[str], deliveries: Deliveries) -> int:
        """Leases that have run out, and workers that are seen to be gone from this machine."""
        held = self._held(own, deliveries)
        if not held:
            return 0
        dead = workers_ended_here(deliveries.workers(), self._host)
        if any(one.worker in dead for one in held):
            # It may have ended jobs whose outcome the store has not heard of.
            if not self._journals.bring_in_left_behind():
                dead = frozenset()  # then by their leases
            held = self._held(own, deliveries)
        lost = [one for one in held if is_lost(one, dead, may_judge=self._watch.may_judge)]
        return self._take_back(lost, deliveries)

    def _held(self, own: Collection[str], deliveries: Deliveries) -> list[Holding]:
        self._watch.answered(deliveries.now_us())
        held = deliveries.holdings(of=own)
        self._watch.answered(deliveries.now_us())
        return held

    def take_back_of_place(
        self, job_id: str, named: Collection[str], own: Collection[str], deliveries: Deliveries
    ) -> int:
        """The cluster says that the place is no more. `named`: jobs that it says were there."""
        held = deliveries.holdings(of=own)
        if not held:
            return 0
        places = {worker.name: _place_of(worker) for worker in deliveries.workers()}
        lost = [one for one in held if _was_there(one, places.get(one.worker, ""), job_id, named)]
        return self._take_back(lost, deliveries)

    def _take_back(self, lost: Iterable[Holding], deliveries: Deliveries) -> int:
        return sum(deliveries.take_back(one.uuid, one.fence) is not None for one in lost)


def held_in_place(deliveries: Deliveries, uuids: Collection[str], job_id: str) -> list[Holding]:
    """Returns the tickets of these jobs that workers in the allocation of this id hold."""
    held = deliveries.holdings(of=uuids)
    places = {worker.name: _place_of(worker) for worker in deliveries.workers()} if held else {}
    return [one for one in held if _was_there(one, places.get(one.worker, ""), job_id, uuids)]


def _place_of(worker: WorkerInfo) -> str:
    return str(worker.facts.get(PLACE, ""))


def _was_there(holding: Holding, place: str, job_id: str, named: Collection[str]) -> bool:
    """Where a job was placed twice a worker elsewhere may have it. One of an array is of the whole array."""
    attempt = holding.attempt
    if not place and attempt is not None and attempt.placement is not None:
        place = attempt.placement.job_id
    if place:
        return place == job_id or place.startswith(f"{job_id}_")
    return holding.uuid in named
