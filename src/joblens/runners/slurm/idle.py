"""Allocations of a run that have nothing to do while others of its jobs wait for nodes."""

from collections.abc import Collection, Mapping

from joblens.model.clusters.placing import PlaceState
from joblens.runners.slurm.allocations import LivePlace

_IDLE_S = 2.0  # what has just ended may be followed by more of its kind
_FOR_NODES = ("Resources", "Priority")


class IdleAllocations:
    def __init__(self) -> None:
        self._since_s: dict[str, float] = {}
        self._told: set[str] = set()

    def to_end(self, live: Mapping[str, LivePlace], busy: Collection[str], now_s: float) -> list[str]:
        """Ids of those that are to leave now, each once. `busy`: queues with jobs that have not ended."""
        idle = {
            job_id
            for job_id, place in live.items()
            if place.is_allocation
            and place.state is PlaceState.RUNNING
            and place.queues
            and not any(queue in busy for queue in place.queues)
        }
        self._since_s = {job_id: self._since_s.get(job_id, now_s) for job_id in idle}
        self._told &= idle
        if not any(_waits_for_nodes(place) for place in live.values()):
            return []
        due = [one for one in sorted(idle - self._told) if now_s - self._since_s[one] >= _IDLE_S]
        self._told.update(due)
        return due


def _waits_for_nodes(place: LivePlace) -> bool:
    """Or for a share of what the user may have."""
    reason = place.told[1]
    return place.state is PlaceState.WAITING and (reason in _FOR_NODES or "Limit" in reason)
