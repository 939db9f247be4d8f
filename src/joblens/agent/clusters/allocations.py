"""The places that a run has at a cluster, and which of its jobs they are for. Knows nothing but what it is
told."""

from collections.abc import Callable, Collection

from joblens.model.clusters.placing import Placed


class RunPlaces:
    def __init__(self) -> None:
        self.live: dict[str, Placed] = {}  # by the cluster's own id
        self._of: dict[str, set[str]] = {}  # uuid -> places that are for it
        self._serving: dict[str, set[str]] = {}  # queue -> places that serve it
        self._in_use: set[str] = set()  # places of which it is known that something began there

    def add(self, placed: Placed) -> None:
        job_id = placed.placement.job_id
        self.live[job_id] = placed
        for uuid in placed.uuids:
            self._of.setdefault(uuid, set()).add(job_id)
        if placed.queue and not placed.uuids:
            self._serving.setdefault(placed.queue, set()).add(job_id)

    def remove(self, job_id: str) -> Placed | None:
        placed = self.live.pop(job_id, None)
        if placed is None:
            return None
        self._in_use.discard(job_id)
        for uuid in placed.uuids:
            left = self._of.get(uuid, set())
            left.discard(job_id)
            if not left:
                self._of.pop(uuid, None)
        if placed.queue:
            self._serving.get(placed.queue, set()).discard(job_id)
        return placed

    def are_for(self, uuid: str, queue: str) -> bool:
        """Whether any is left that could take it."""
        return bool(self._of.get(uuid) or self._serving.get(queue))

    def serving(self, queue: str) -> int:
        """How many serve it."""
        return len(self._serving.get(queue, ()))

    def has_several(self, uuid: str) -> bool:
        return len(self._of.get(uuid, ())) > 1

    def of(self, uuid: str, queue: str) -> list[Placed]:
        ids = self._of.get(uuid, set()) | self._serving.get(queue, set())
        return [self.live[job_id] for job_id in sorted(ids)]

    def has_begun(self, uuid: str, queue: str) -> None:
        """A job began: what is for it was not asked for in vain."""
        self._in_use |= self._of.get(uuid, set()) | self._serving.get(queue, set())

    def was_used(self, job_id: str) -> bool:
        return job_id in self._in_use

    def waiting_for(
        self, placed: Placed, waiting: Collection[str], queue_of: Callable[[str], str]
    ) -> list[str]:
        """Of those that wait, the ones that the place was for."""
        if placed.uuids:
            return [uuid for uuid in placed.uuids if uuid in waiting]
        return [uuid for uuid in waiting if queue_of(uuid) == placed.queue]
