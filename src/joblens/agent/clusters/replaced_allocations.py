"""Allocations of a run that ended while jobs were left: when another one is asked for, and when no more.

An allocation that was cancelled, failed or came to the end of its time is replaced while jobs wait for it, so
that as many keep working as were asked for. Ones that end within a minute say that something is wrong: after
a few in a row no more are asked for as long as others work. Pure: the clock comes in."""

from collections import Counter
from collections.abc import Callable, Mapping

from msgspec import Struct

from joblens.model.clusters.placing import AllocationEvent, Placed, PlaceState
from joblens.plan.slurm.terms import seconds_asked

_SETTLE_S = 2.0  # for jobs of a lost allocation to be queued again
_SHORT_S = 60.0
_MOST_SHORT = 3  # in a row
_MOST_OF_ITS_TIME = 0.8  # an allocation that ends by itself before had nothing to do


class Replacement(Struct, frozen=True):
    queue: str
    count: int  # 0: none is asked for
    message: str


class _Loss(Struct, frozen=True):
    at_s: float
    job_id: str
    word: str


class ReplacedAllocations:
    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._wanted: Counter[str] = Counter()  # allocations that are to serve each queue
        self._began_at_s: dict[str, float] = {}
        self._losses: dict[str, list[_Loss]] = {}
        self._short: Counter[str] = Counter()  # that ended soon, in a row
        self._stopped: set[str] = set()  # queues for which no more are asked

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
        if news.state is PlaceState.ENDED and (asked_s is None or lived_s < _MOST_OF_ITS_TIME * asked_s):
            self._wanted[queue] -= 1  # it left by itself
            return
        self._short[queue] = self._short[queue] + 1 if lived_s < _SHORT_S else 0
        self._losses.setdefault(queue, []).append(_Loss(now_s, news.job_id, news.word))

    def due_at_s(self) -> float | None:
        times = [loss.at_s + _SETTLE_S for losses in self._losses.values() for loss in losses]
        return min(times, default=None)

    def due(
        self, waiting: Mapping[str, int], serving: Callable[[str], int], now_s: float
    ) -> list[Replacement]:
        """`waiting`: how many jobs wait in each queue; `serving`: how many allocations are left for it."""
        found = []
        for queue, losses in list(self._losses.items()):
            ready = [loss for loss in losses if now_s >= loss.at_s + _SETTLE_S]
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
            return [Replacement(queue, 0, f"{what}; {soon}: no more are asked for, {serving} left")]
        if not serving or missing <= 0:  # jobs that nothing serves are placed again as new ones are
            return [Replacement(queue, 0, f"{what} while {jobs}: asking for another")]
        another = "another" if missing == 1 else f"{missing} others"
        return [Replacement(queue, missing, f"{what} while {jobs}: asking for {another}")]

    def _named(self, losses: list[_Loss]) -> str:
        words = ", ".join(dict.fromkeys(loss.word for loss in losses if loss.word)) or "gone"
        if len(losses) == 1:
            return f"allocation {losses[0].job_id} of {self._engine} ended ({words})"
        return f"{len(losses)} allocations of {self._engine} ended ({words})"


def _is_allocation(placed: Placed) -> bool:
    """Not a worker that was started on this machine: nothing was asked of the cluster for it."""
    return bool(placed.queue and not placed.uuids and placed.placement.asked)
