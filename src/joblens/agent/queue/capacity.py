"""Capacity of a worker: CPUs, memory and GPUs its jobs take, and the hosts that run them."""

import time
from collections import Counter, deque
from collections.abc import Sequence

from msgspec import Struct

from joblens.agent.attempts.hosts import RunReports, RunSessions, RunSlots
from joblens.agent.attempts.preparation import PreparedAttempt
from joblens.agent.queue.claimed_jobs import ClaimedJob, WorkerPlan
from joblens.agent.session.context import AgentContext
from joblens.agent.slots.loop import SlotPlan
from joblens.model.clusters.placement import NodeCapacity

_AHEAD_S = 0.1  # of work that may lie behind what runs, for each place
_MOST_AHEAD = 48
_NEWS = 0.1  # what the last duration counts for in the mean


class Taken(Struct):
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
        """None: not counted. `ends_at_s`: by the monotonic clock, when nothing is to run any more."""
        self._concurrency = concurrency
        self._memory_bytes = memory_bytes
        self._gpus = None if gpus is None else tuple(gpus)
        self._ends_at_s = ends_at_s
        self._free_gpus = deque(gpus or ())
        self._free_bytes = memory_bytes or 0
        self._lent: dict[str, tuple[str, ...]] = {}  # uuid -> devices that somebody else gave it
        self._taken: dict[str, Taken] = {}
        self._alone = 0  # places of jobs that are sessions
        self._in_slots: Counter[int] = Counter()  # by weight: jobs that have a place
        self._behind = 0  # jobs of weight 1 that wait behind others in slots
        self._mean_s: float | None = None  # of jobs in slots
        self._usual_s: float | None = None  # of jobs that do not say how long they take

    def set_places(self, concurrency: int) -> None:
        """What runs in places that are gone goes on."""
        self._concurrency = concurrency

    def lend(self, uuid: str, devices: tuple[str, ...]) -> None:
        self._lent[uuid] = devices

    def lend_no_more(self, uuid: str) -> None:
        self._lent.pop(uuid, None)

    @property
    def free(self) -> int:
        used = self._alone + sum(weight * count for weight, count in self._in_slots.items())
        return max(0, self._concurrency - used)

    @property
    def appetite(self) -> int:
        """How many more jobs may be claimed. Those that only go behind others are claimed many at once."""
        most = self._most_behind()
        room = most - self._behind
        return self.free + (room if room > 0 and (self.free or 2 * room >= most) else 0)

    def room(self) -> NodeCapacity:
        """What is free now, of what is counted."""
        return NodeCapacity(
            memory_bytes=None if self._memory_bytes is None else self._free_bytes,
            gpus=None if self._gpus is None else len(self._free_gpus),
            time_s=self._time_s(),
            usual_s=self._usual_s,
        )

    def whole(self) -> NodeCapacity:
        """What a job could have at most, once the others have ended."""
        gpus = None if self._gpus is None else len(self._gpus)
        return NodeCapacity(
            memory_bytes=self._memory_bytes, gpus=gpus, time_s=self._time_s(), usual_s=self._usual_s
        )

    def _time_s(self) -> float | None:
        return None if self._ends_at_s is None else max(0.0, self._ends_at_s - time.monotonic())

    def _most_behind(self) -> int:
        if self._mean_s is None or not self._in_slots[1]:
            return 0
        return self._in_slots[1] * min(_MOST_AHEAD, int(_AHEAD_S / max(self._mean_s, 1e-4)))

    def fits(self, held: ClaimedJob) -> bool:
        if self._memory_of(held) > self._free_bytes or self._devices_of(held) > len(self._free_gpus):
            return False
        return self._weight_of(held) <= self.free or self._may_go_behind(held)

    def _may_go_behind(self, held: ClaimedJob) -> bool:
        return (
            held.is_plain
            and held.weight == 1
            and self._behind < self._most_behind()
            and not self._memory_of(held)
            and not self._devices_of(held)
        )

    def _weight_of(self, held: ClaimedJob) -> int:
        """A job that wants more than there is gets it all."""
        return max(1, min(held.weight, self._concurrency))

    def _memory_of(self, held: ClaimedJob) -> int:
        wanted = held.claim.job.requirements.memory_bytes or 0
        return 0 if self._memory_bytes is None else min(wanted, self._memory_bytes)

    def _devices_of(self, held: ClaimedJob) -> int:
        """Of those that are given here."""
        if self._gpus is None or held.uuid in self._lent:
            return 0
        return min(held.claim.job.requirements.gpus or 0, len(self._gpus))

    def take(self, held: ClaimedJob) -> Taken:
        weight, memory_bytes = self._weight_of(held), self._memory_of(held)
        devices = self._lent.pop(held.uuid, ()) or tuple(
            self._free_gpus.popleft() for _ in range(min(self._devices_of(held), len(self._free_gpus)))
        )
        taken = Taken(weight, memory_bytes, devices)
        self._free_bytes -= memory_bytes
        if not held.is_plain:
            self._alone += weight
        elif weight <= self.free:
            self._in_slots[weight] += 1
        else:
            self._behind += 1
            taken.is_behind = True
        self._taken[held.uuid] = taken
        return taken

    def leave(self, held: ClaimedJob, duration_s: float | None) -> None:
        """`duration_s`: of a job that ran."""
        taken = self._taken.pop(held.uuid)
        if duration_s is not None and held.claim.job.requirements.timeout_s is None:
            self._usual_s = _with_news(self._usual_s, duration_s)
        self._free_bytes += taken.memory_bytes
        own = set(self._gpus or ())
        self._free_gpus.extend(device for device in taken.devices if device in own)
        if not held.is_plain:
            self._alone -= taken.weight
            return
        if taken.weight == 1 and self._behind:
            self._behind -= 1  # that one has the place now
        else:
            self._in_slots[taken.weight] -= 1
        if duration_s is not None:
            self._mean_s = _with_news(self._mean_s, duration_s)


def _with_news(mean_s: float | None, duration_s: float) -> float:
    return duration_s if mean_s is None else mean_s + _NEWS * (duration_s - mean_s)


_SLOTS = "worker:slots"
_SLOTS_EVERY_S = 1.0


class WorkerHosts:
    def __init__(self, plan: WorkerPlan, context: AgentContext, reports: RunReports) -> None:
        self._context = context
        slots = SlotPlan(
            width=1,
            logs_dir=plan.logs_dir,
            output_max_bytes=plan.output_max_bytes,
            accounting=plan.accounting,
        )
        self._slots = RunSlots(context, slots, reports, plan.end_signal)
        self._sessions = RunSessions(
            context,
            plan.environ,
            reports,
            accounting=plan.accounting,
            output_max_bytes=plan.output_max_bytes,
            end_signal=plan.end_signal,
        )

    def begin_samples(self) -> None:
        self._context.sampler.add(_SLOTS, _SLOTS_EVERY_S, self._slots.take_samples)

    def end_samples(self) -> None:
        self._context.sampler.remove(_SLOTS)

    def start(self, held: ClaimedJob, taken: Taken) -> None:
        """It goes with the next `flush`."""
        attempt = held.with_devices(taken.devices)
        if held.is_plain:
            self._slots.start(attempt, taken.weight, behind=taken.is_behind)
        else:
            self._sessions.expect(2)  # where there was one there may be another: a launcher stands by
            self._sessions.start(attempt)

    def start_beside(self, attempt: PreparedAttempt) -> None:
        """A command that is no job of anybody's."""
        self._sessions.start(attempt)

    def flush(self) -> None:
        self._slots.flush()

    def end(self, uuid: str, *, at_once: bool) -> None:
        for host in (self._slots, self._sessions):
            if host.holds(uuid):
                host.end(uuid, at_once=at_once)

    def close(self) -> None:
        self._slots.close(at_once=True)
        self._sessions.close()
