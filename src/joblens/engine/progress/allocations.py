"""Allocations of a run at a cluster, from the events that its driver recorded."""

from collections.abc import Iterable

from msgspec import Struct

from joblens.model.clusters.placement import Placed
from joblens.model.runs.run import AllocationEnded, AllocationsWait, RunEvent, WorkPlaced


class JobAllocation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    engine: str
    job_id: str  # id at the cluster; '': none while the job waits
    why: str = ""  # why it waits, as the cluster reports it
    is_shared: bool = False  # the allocation also serves other jobs


class RunAllocations:
    """Allocations of one run. Later events may be added at any time."""

    def __init__(self, events: Iterable[RunEvent]) -> None:
        self._live: dict[str, Placed] = {}
        self._of: dict[str, str] = {}  # uuid -> its newest allocation
        self._serving: dict[str, str] = {}  # queue -> its newest allocation
        self._whys: dict[str, str] = {}
        self._reasons: dict[str, str] = {}  # reasons of allocations that ended early
        for event in events:
            self.take(event)

    def take(self, event: RunEvent) -> None:
        fact = event.fact
        if isinstance(fact, WorkPlaced):
            for placed in fact.placed:
                self._add(placed)
        elif isinstance(fact, AllocationsWait):
            self._whys.update(fact.whys)
        elif isinstance(fact, AllocationEnded):
            for job_id in fact.job_ids:
                if fact.is_gone:
                    self._reasons[job_id] = fact.word
                self._live.pop(job_id, None)
                self._whys.pop(job_id, None)

    def _add(self, placed: Placed) -> None:
        job_id = placed.placement.job_id
        self._live[job_id] = placed
        self._of.update(dict.fromkeys(placed.uuids, job_id))
        if placed.queue and not placed.uuids:
            self._serving[placed.queue] = job_id

    @property
    def live(self) -> tuple[Placed, ...]:
        """Returns the allocations whose end was not reported."""
        return tuple(self._live.values())

    def last_word(self, uuid: str) -> str:
        """Returns the cluster's reason for ending the newest allocation of this job; '' if it did not end
        it."""
        return self._reasons.get(self._of.get(uuid, ""), "")

    def of(self, uuid: str, queue: str = "") -> JobAllocation | None:
        """`queue`: queue of its ticket; '': the only one."""
        job_id = self._of.get(uuid, "")
        if job_id not in self._live:
            only = next(iter(self._serving.values()), "") if len(self._serving) == 1 else ""
            job_id = self._serving.get(queue, "") if queue else only
        placed = self._live.get(job_id)
        if placed is None:
            return None
        return JobAllocation(
            engine=placed.placement.engine,
            job_id=job_id if job_id != uuid else "",
            why=self._whys.get(job_id, ""),
            is_shared=not placed.uuids,
        )
