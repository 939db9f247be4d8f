"""Allocations of a run at a cluster: requested on a thread, matched to jobs, replaced when they end early,
given up when they keep failing.

An allocation that was cancelled, failed or reached its time limit is replaced while jobs wait for it, so that
the requested number keeps working. Allocations that end within a minute indicate an error: after a few in a
row no more are requested as long as others work. Pure: the clock is an argument."""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from msgspec import Struct

from joblens.agent.runtime.loop import Loop
from joblens.model.clusters.placement import AllocationEvent, AllocationState, Placed
from joblens.model.errors import JoblensError
from joblens.ports.cluster import ClusterBackend
from joblens.runners.slurm.terms import seconds_asked


class LiveAllocations:
    def __init__(self) -> None:
        self.live: dict[str, Placed] = {}  # by the cluster's own id
        self._of: dict[str, set[str]] = {}  # uuid -> allocations that are for it
        self._serving: dict[str, set[str]] = {}  # queue -> allocations that serve it
        self._in_use: set[str] = set()  # allocations in which a job has begun

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

    def has_allocation(self, uuid: str, queue: str) -> bool:
        """Returns whether an allocation is left for the job."""
        return bool(self._of.get(uuid) or self._serving.get(queue))

    def serving(self, queue: str) -> int:
        """Returns how many allocations serve the queue."""
        return len(self._serving.get(queue, ()))

    def has_several(self, uuid: str) -> bool:
        return len(self._of.get(uuid, ())) > 1

    def of(self, uuid: str, queue: str) -> list[Placed]:
        ids = self._of.get(uuid, set()) | self._serving.get(queue, set())
        return [self.live[job_id] for job_id in sorted(ids)]

    def mark_used(self, uuid: str, queue: str) -> None:
        """Clears the failures of a request: a job has started."""
        self._in_use |= self._of.get(uuid, set()) | self._serving.get(queue, set())

    def is_used(self, job_id: str) -> bool:
        return job_id in self._in_use

    def waiting_for(
        self, placed: Placed, waiting: Collection[str], queue_of: Callable[[str], str]
    ) -> list[str]:
        """Returns the waiting jobs that the allocation was for."""
        if placed.uuids:
            return [uuid for uuid in placed.uuids if uuid in waiting]
        return [uuid for uuid in waiting if queue_of(uuid) == placed.queue]


_MOST = 3  # allocations of one job
_MOST_NAMES = 5


class FailedAllocation(Struct, frozen=True):
    """Allocations that ended for one reason, found in the same poll."""

    exhausted: tuple[str, ...]  # jobs for which no other allocation is requested
    why: str  # of these jobs
    warning: str  # about the others; '': there are none


class AllocationRetryLimit:
    def __init__(self, engine: str, name_of: Callable[[str], str]) -> None:
        self._engine = engine
        self._name_of = name_of
        self._counts: Counter[str] = Counter()

    def forget(self, uuid: str) -> None:
        self._counts.pop(uuid, None)

    def count(self, ended: Iterable[tuple[AllocationEvent, Sequence[str]]]) -> list[FailedAllocation]:
        """`ended`: allocations, each with the waiting jobs that it was for. The failure of a cluster or node
        does not count: its jobs may have any number of allocations."""
        alike: dict[tuple[str, bool], dict[str, list[str]]] = {}
        for news, uuids in ended:
            if uuids:
                key = (_describe(news), news.is_by_others)
                alike.setdefault(key, {})[news.job_id] = list(uuids)
        return [
            self._combined(allocations, words, is_by_others=is_by_others)
            for (words, is_by_others), allocations in alike.items()
        ]

    def _combined(
        self, allocations: Mapping[str, list[str]], words: str, *, is_by_others: bool
    ) -> FailedAllocation:
        uuids = list(dict.fromkeys(uuid for some in allocations.values() for uuid in some))
        if not is_by_others:
            self._counts.update(uuids)
        exhausted = tuple(uuid for uuid in uuids if self._counts[uuid] >= _MOST)
        again = [uuid for uuid in uuids if self._counts[uuid] < _MOST]
        how = f"ended before its worker started ({words})"
        what = f"{self._named(allocations)} {how}"
        its = what if len(allocations) == 1 else f"its allocation at {self._engine} {how}"
        return FailedAllocation(
            exhausted,
            f"{its}, as did {_MOST - 1} before it",
            f"{what}: {self._listed(again)} resubmitted" if again else "",
        )

    def _named(self, allocations: Mapping[str, list[str]]) -> str:
        if len(allocations) > 1:
            return f"{len(allocations)} allocations at {self._engine}"
        ((job_id, uuids),) = allocations.items()
        return f"an allocation at {self._engine}" if job_id in uuids else f"{self._engine} job {job_id}"

    def _listed(self, uuids: Sequence[str]) -> str:
        names = ", ".join(map(self._name_of, uuids[:_MOST_NAMES]))
        return names if len(uuids) <= _MOST_NAMES else f"{names}, … ({len(uuids)} jobs)"


def _describe(news: AllocationEvent) -> str:
    return ": ".join(word for word in (news.word, news.reason) if word) or news.state.value


_REQUEUE_S = 2.0  # for jobs of a lost allocation to be requeued
_SHORT_S = 60.0
_MOST_SHORT = 3  # in a row
_MOST_OF_ITS_TIME = 0.8  # an allocation that ends by itself earlier had no jobs


class Replacement(Struct, frozen=True):
    queue: str
    count: int  # 0: none is requested
    message: str


class _Loss(Struct, frozen=True):
    at_s: float
    job_id: str
    word: str


class ReplacedAllocations:
    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._wanted: Counter[str] = Counter()  # number of allocations that serve each queue
        self._began_at_s: dict[str, float] = {}
        self._losses: dict[str, list[_Loss]] = {}
        self._short: Counter[str] = Counter()  # short allocations in a row
        self._stopped: set[str] = set()  # queues for which no more are requested

    def added(self, placed: Placed, serving: int) -> None:
        """`serving`: allocations of its queue, with this one."""
        if _is_allocation(placed):
            self._wanted[placed.queue] = max(self._wanted[placed.queue], serving)

    def runs(self, job_id: str, now_s: float) -> None:
        self._began_at_s.setdefault(job_id, now_s)

    def ended(self, placed: Placed, news: AllocationEvent, now_s: float) -> None:
        if not _is_allocation(placed):
            return
        began_at_s = self._began_at_s.pop(news.job_id, None)
        lived_s = 0.0 if began_at_s is None else now_s - began_at_s
        asked_s = seconds_asked(placed.placement.asked)
        queue = placed.queue
        if news.state is AllocationState.ENDED and (asked_s is None or lived_s < _MOST_OF_ITS_TIME * asked_s):
            self._wanted[queue] -= 1  # it ended by itself
            return
        self._short[queue] = self._short[queue] + 1 if lived_s < _SHORT_S else 0
        self._losses.setdefault(queue, []).append(_Loss(now_s, news.job_id, news.word))

    def due_at_s(self) -> float | None:
        times = [loss.at_s + _REQUEUE_S for losses in self._losses.values() for loss in losses]
        return min(times, default=None)

    def due(
        self, waiting: Mapping[str, int], serving: Callable[[str], int], now_s: float
    ) -> list[Replacement]:
        """`waiting`: number of waiting jobs per queue; `serving`: returns how many allocations are left for
        it."""
        found = []
        for queue, losses in list(self._losses.items()):
            ready = [loss for loss in losses if now_s >= loss.at_s + _REQUEUE_S]
            if not ready:
                continue
            self._losses[queue] = [loss for loss in losses if loss not in ready]
            if not self._losses[queue]:
                del self._losses[queue]
            found += self._answer(queue, ready, waiting.get(queue, 0), serving(queue))
        return found

    def _answer(self, queue: str, losses: list[_Loss], waiting: int, serving: int) -> list[Replacement]:
        if not waiting:
            self._wanted[queue] = serving
            return []
        what = self._named(losses)
        jobs = "1 job waits" if waiting == 1 else f"{waiting} jobs wait"
        missing = min(self._wanted[queue] - serving, waiting)
        if serving and self._short[queue] >= _MOST_SHORT:
            self._wanted[queue] = serving
            if queue in self._stopped:
                return []
            self._stopped.add(queue)
            soon = f"{_MOST_SHORT} in a row ended within a minute"
            return [Replacement(queue, 0, f"{what}; {soon}: no more are requested, {serving} left")]
        if not serving or missing <= 0:  # jobs without an allocation are resubmitted like new ones
            return [Replacement(queue, 0, f"{what} while {jobs}: requesting another")]
        another = "another" if missing == 1 else f"{missing} others"
        return [Replacement(queue, missing, f"{what} while {jobs}: requesting {another}")]

    def _named(self, losses: list[_Loss]) -> str:
        words = ", ".join(dict.fromkeys(loss.word for loss in losses if loss.word)) or "gone"
        if len(losses) == 1:
            return f"allocation {losses[0].job_id} of {self._engine} ended ({words})"
        return f"{len(losses)} allocations of {self._engine} ended ({words})"


def _is_allocation(placed: Placed) -> bool:
    """Returns whether the cluster granted it: not a worker that was started on this machine."""
    return bool(placed.queue and not placed.uuids and placed.placement.asked)


T = TypeVar("T")
_TIMEOUT_S = 30.0  # with a cluster that does not answer, at the end of a run


class AsyncBackend:
    """Queries a cluster on a thread, in order. Callbacks run on the loop."""

    def __init__(self, backend: ClusterBackend, loop: Loop) -> None:
        self._backend = backend
        self._loop = loop
        self._requests: SimpleQueue[
            tuple[Callable[[ClusterBackend], Any], Callable[[Any], None], Callable[[JoblensError], None]]
            | None
        ] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="joblens-placing", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask(
        self,
        question: Callable[[ClusterBackend], T],
        then: Callable[[T], None],
        otherwise: Callable[[JoblensError], None] = lambda _: None,
    ) -> None:
        self._requests.put((question, then, otherwise))

    def close(self, *, is_over: bool) -> None:
        """Queues the last request, without waiting; `wait` does."""
        self._requests.put((lambda backend: backend.close(is_over=is_over), lambda _: None, lambda _: None))
        self._requests.put(None)

    def wait(self) -> None:
        """Returns when the cluster was notified, or does not answer."""
        if self._thread.is_alive():
            self._thread.join(_TIMEOUT_S)

    def _run(self) -> None:
        while (request := self._requests.get()) is not None:
            question, then, otherwise = request
            try:
                answer = question(self._backend)
            except JoblensError as error:
                self._loop.call(partial(otherwise, error))
            except BaseException as error:  # noqa: BLE001 - a fault of joblens is raised on the loop
                self._loop.call(partial(_raise, error))
                return
            else:
                self._loop.call(partial(then, answer))


def _raise(error: BaseException) -> None:
    raise error
