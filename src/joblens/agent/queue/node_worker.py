"""A worker that stays on a node of a cluster: those whom the cluster lets begin there bring it jobs, and the
room that the cluster gave for them (`runners.node_ear`)."""

from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from joblens.agent.queue.claimed_jobs import ClaimedJob
from joblens.agent.queue.worker import QueueWorker
from joblens.model.clusters.allocation import NodeDoors
from joblens.model.jobs.job import Outcome, Placement


class NodeWorker(QueueWorker):
    """What is here is called on the thread that hears, but `_begin` and `ended`."""

    def lend(
        self,
        uuid: str,
        gpus: tuple[str, ...] | None,
        placement: Placement | None,
        doors: NodeDoors | None = None,
    ) -> None:
        """Before `take` of the same job: the devices that whoever brings it has for it, where it is by the
        cluster's word, and a way to its other nodes."""
        if doors is not None and self._context.nodes is not None:
            self._context.nodes.lend(uuid, doors)
        if placement is not None:
            self._fences.place(uuid, placement)
        if gpus is not None:
            self._places.lend(uuid, gpus)

    def set_places(self, places: int) -> None:
        """That it has from now on. What runs in places that are gone goes on."""
        self._context.loop.call(partial(self._set_places, places))

    def let_go(self, uuid: str) -> None:
        """Whoever brought it is gone: it ends, and others may have it. Nothing, when it is not held."""
        self._context.loop.call(partial(self._let_go, uuid))

    def _set_places(self, places: int) -> None:
        self._places.set_places(places)
        self._fill()

    def _let_go(self, uuid: str) -> None:
        self._places.lend_no_more(uuid)
        if self._heard.forget(uuid):
            return
        if not self.is_running(uuid):
            if self._search.is_asking:
                self._forgone.add(uuid)  # for it, perhaps
        elif uuid not in self._unwanted:
            self.drop(uuid)

    def _begin(self, held: ClaimedJob) -> None:
        """What it prints is sent away as it comes, where it is not written to where it was meant to be. Jobs
        that share a launcher have files of their own only at their end, which is soon where several were
        brought together."""
        placement = self._fences.placement_of(held.uuid)
        if held.prints_elsewhere and not (placement is not None and placement.is_allocation):
            held = self._claimed[held.uuid] = replace(held, is_plain=False)
        self._view.began(held)  # slots tell of it with its first sample: what it prints is wanted sooner
        super()._begin(held)

    def ended(self, uuid: str, outcome: Outcome) -> None:
        is_own = uuid in self._running
        super().ended(uuid, outcome)
        if is_own:
            self._view.has_run(uuid, outcome.duration_s)

    def take(self, uuid: str, settled: Callable[[], None]) -> None:
        self._context.loop.call(partial(self._forgone.discard, uuid))  # it has been brought once more
        super().take(uuid, settled)
