"""Capacity of a worker: the CPUs, memory and GPUs of its jobs, and how many more it may claim."""

from collections import Counter, deque
from collections.abc import Sequence

from msgspec import Struct

from joblens.model.clusters.placement import NodeCapacity
from joblens.model.jobs.job import Requirements

_AHEAD_S = 0.1  # seconds of work that may wait behind running jobs, per CPU
_MOST_AHEAD = 48
_RECENT_WEIGHT = 0.1  # weight of the last duration in the mean


class Demand(Struct, frozen=True):
    """`weight`: CPUs. `is_plain`: it shares a launcher with other jobs."""

    requirements: Requirements
    weight: int = 1
    is_plain: bool = True


class Share(Struct, frozen=True):
    """Capacity of one job. `is_behind`: it waits in the slot of a running job."""

    demand: Demand
    weight: int
    memory_bytes: int
    devices: tuple[str, ...]
    is_behind: bool = False


class WorkerCapacity:
    def __init__(
        self,
        concurrency: int,
        *,
        memory_bytes: int | None = None,
        gpus: Sequence[str] | None = None,
        ends_at_s: float | None = None,
    ) -> None:
        """None: unlimited. `ends_at_s`: when the worker ends."""
        self._concurrency = concurrency
        self._memory_bytes = memory_bytes
        self._gpus = None if gpus is None else tuple(gpus)
        self._ends_at_s = ends_at_s
        self._free_gpus = deque(gpus or ())
        self._free_bytes = memory_bytes or 0
        self._assigned: dict[str, tuple[str, ...]] = {}  # uuid -> devices that the cluster assigned
        self._shares: dict[str, Share] = {}
        self._alone = 0  # CPUs of jobs that have a session
        self._in_slots: Counter[int] = Counter()  # jobs that run in slots, by weight
        self._behind = 0  # jobs of weight 1 that wait in slots
        self._mean_s: float | None = None  # of jobs in slots
        self._usual_s: float | None = None  # of jobs without a time limit

    def resize(self, concurrency: int) -> None:
        """Sets the capacity. Jobs that run beyond it keep running."""
        self._concurrency = concurrency

    def assign_devices(self, uuid: str, devices: tuple[str, ...]) -> None:
        self._assigned[uuid] = devices

    def unassign_devices(self, uuid: str) -> None:
        self._assigned.pop(uuid, None)

    @property
    def free(self) -> int:
        used = self._alone + sum(weight * count for weight, count in self._in_slots.items())
        return max(0, self._concurrency - used)

    @property
    def claim_limit(self) -> int:
        """Returns how many more jobs may be claimed. Jobs that only wait behind others are claimed in large
        batches."""
        most = self._most_behind()
        ahead = most - self._behind
        return self.free + (ahead if ahead > 0 and (self.free or 2 * ahead >= most) else 0)

    def free_now(self, now_s: float) -> NodeCapacity:
        return NodeCapacity(
            memory_bytes=None if self._memory_bytes is None else self._free_bytes,
            gpus=None if self._gpus is None else len(self._free_gpus),
            time_s=self._time_s(now_s),
            usual_s=self._usual_s,
        )

    def total(self, now_s: float) -> NodeCapacity:
        """Returns the most that a job could get once all others have ended."""
        gpus = None if self._gpus is None else len(self._gpus)
        return NodeCapacity(
            memory_bytes=self._memory_bytes, gpus=gpus, time_s=self._time_s(now_s), usual_s=self._usual_s
        )

    def _time_s(self, now_s: float) -> float | None:
        return None if self._ends_at_s is None else max(0.0, self._ends_at_s - now_s)

    def _most_behind(self) -> int:
        if self._mean_s is None or not self._in_slots[1]:
            return 0
        return self._in_slots[1] * min(_MOST_AHEAD, int(_AHEAD_S / max(self._mean_s, 1e-4)))

    def fits(self, uuid: str, demand: Demand) -> bool:
        if self._memory_of(demand) > self._free_bytes or self._devices_of(uuid, demand) > len(
            self._free_gpus
        ):
            return False
        return self._weight_of(demand) <= self.free or self._may_go_behind(uuid, demand)

    def _may_go_behind(self, uuid: str, demand: Demand) -> bool:
        return (
            demand.is_plain
            and demand.weight == 1
            and self._behind < self._most_behind()
            and not self._memory_of(demand)
            and not self._devices_of(uuid, demand)
        )

    def _weight_of(self, demand: Demand) -> int:
        """Returns the CPUs of a job; one that needs more than the worker has gets all of them."""
        return max(1, min(demand.weight, self._concurrency))

    def _memory_of(self, demand: Demand) -> int:
        wanted = demand.requirements.memory_bytes or 0
        return 0 if self._memory_bytes is None else min(wanted, self._memory_bytes)

    def _devices_of(self, uuid: str, demand: Demand) -> int:
        """Returns devices of the worker itself."""
        if self._gpus is None or uuid in self._assigned:
            return 0
        return min(demand.requirements.gpus or 0, len(self._gpus))

    def take(self, uuid: str, demand: Demand) -> Share:
        weight, memory_bytes = self._weight_of(demand), self._memory_of(demand)
        devices = self._assigned.pop(uuid, ()) or tuple(
            self._free_gpus.popleft()
            for _ in range(min(self._devices_of(uuid, demand), len(self._free_gpus)))
        )
        self._free_bytes -= memory_bytes
        is_behind = demand.is_plain and weight > self.free
        if not demand.is_plain:
            self._alone += weight
        elif is_behind:
            self._behind += 1
        else:
            self._in_slots[weight] += 1
        share = self._shares[uuid] = Share(demand, weight, memory_bytes, devices, is_behind)
        return share

    def leave(self, uuid: str, duration_s: float | None) -> None:
        """Frees a job's capacity. `duration_s`: how long it ran, if it did."""
        share = self._shares.pop(uuid)
        if duration_s is not None and share.demand.requirements.timeout_s is None:
            self._usual_s = _mean_with(self._usual_s, duration_s)
        self._free_bytes += share.memory_bytes
        own = set(self._gpus or ())
        self._free_gpus.extend(device for device in share.devices if device in own)
        if not share.demand.is_plain:
            self._alone -= share.weight
            return
        if share.weight == 1 and self._behind:
            self._behind -= 1  # the waiting job runs now
        else:
            self._in_slots[share.weight] -= 1
        if duration_s is not None:
            self._mean_s = _mean_with(self._mean_s, duration_s)


def _mean_with(mean_s: float | None, duration_s: float) -> float:
    return duration_s if mean_s is None else mean_s + _RECENT_WEIGHT * (duration_s - mean_s)
