"""Which jobs go to Ray together in one task. Pure.

A task of Ray takes a millisecond or two to place. Jobs shorter than a tenth of a second go several in
one task, one behind the other; what is longer, or not known yet, goes alone. How long jobs of a kind take is
learned from those that have ended.

Ray keeps no order. Where some jobs go before others, it is given only what can run at once."""

from collections import deque
from collections.abc import Collection, Iterator

from msgspec import Struct, field

from joblens.runners.ray.messages import Need, Wanted

BUNDLE_S = 0.2  # of work in one task
_MOST = 128  # jobs in one
_LEAST_S = 0.02
_ALONE_S = BUNDLE_S / 2
# With the first ones of a kind: when none has ended by then they are long. Ray has enough of them until then.
_PATIENCE_S = 2.0
_NEWS = 0.3  # what the last task counts for in the mean
_AHEAD = 2  # tasks of short jobs at Ray, for each that can run

Kind = tuple[Need, int]


class _Waiting(Struct):
    jobs: deque[Wanted] = field(default_factory=deque)
    tasks: int = 0  # at Ray
    mean_s: float | None = None  # a job
    first_began_s: float | None = None


class Bundling:
    """Time comes in with each call, in seconds that only go up."""

    def __init__(self) -> None:
        self._kinds: dict[Kind, _Waiting] = {}
        self.is_ranked = False  # jobs of the run have priorities that differ

    def add(self, jobs: Collection[Wanted]) -> None:
        for job in jobs:
            self._kinds.setdefault(_kind(job), _Waiting()).jobs.append(job)

    def remove(self, uuids: Collection[str]) -> set[str]:
        """-> those that were still here"""
        found: set[str] = set()
        for waiting in self._kinds.values():
            here = {job.uuid for job in waiting.jobs if job.uuid in uuids}
            if here:
                found |= here
                waiting.jobs = deque(job for job in waiting.jobs if job.uuid not in here)
        return found

    @property
    def uuids(self) -> set[str]:
        return {job.uuid for waiting in self._kinds.values() for job in waiting.jobs}

    @property
    def needs(self) -> set[Need]:
        return {need for (need, _), waiting in self._kinds.items() if waiting.jobs}

    def began(self, need: Need, kind: int, now_s: float) -> None:
        waiting = self._kinds[need, kind]
        if waiting.first_began_s is None:
            waiting.first_began_s = now_s

    def ended(self, need: Need, kind: int, jobs: int, seconds: float) -> None:
        """A task, however it came to its end; `jobs`: of them, those that ended in it."""
        waiting = self._kinds[need, kind]
        waiting.tasks -= 1
        if jobs:
            mean_s = seconds / jobs
            old_s = waiting.mean_s
            waiting.mean_s = mean_s if old_s is None else old_s + _NEWS * (mean_s - old_s)

    def take(self, width: dict[Need, int], now_s: float) -> Iterator[list[Wanted]]:
        """What is to go to Ray now, each list as one task. `width`: how many tasks with such a need the
        cluster can run at a time; those that are not named: one."""
        in_order = self._in_order()
        tasks = sum(waiting.tasks for waiting in self._kinds.values())
        for need, waiting in in_order:
            at_once = max(1, width.get(need, 1))
            is_next = waiting is in_order[0][1]
            while waiting.jobs:
                # What goes first is given to Ray even where others run: small ones may come and go for ever.
                if self.is_ranked and tasks >= at_once and not (is_next and not waiting.tasks):
                    break
                size = 1 if need.nodes > 1 or need.gpus else self._size(waiting, at_once, now_s)
                if not size:
                    break
                waiting.tasks += 1
                tasks += 1
                yield [waiting.jobs.popleft() for _ in range(min(size, len(waiting.jobs)))]

    def _in_order(self) -> list[tuple[Need, _Waiting]]:
        kinds = [(need, waiting) for (need, _), waiting in self._kinds.items() if waiting.jobs]
        return sorted(kinds, key=lambda one: -one[1].jobs[0].priority) if self.is_ranked else kinds

    def next_look_s(self) -> float | None:
        """When those that wait for the first of their kind have waited long enough."""
        due = [
            waiting.first_began_s + _PATIENCE_S
            for waiting in self._kinds.values()
            if waiting.jobs and waiting.mean_s is None and waiting.first_began_s is not None
        ]
        return min(due, default=None)

    def _size(self, waiting: _Waiting, at_once: int, now_s: float) -> int:
        """Of the next task; 0: it is too early for one."""
        is_full = waiting.tasks >= _AHEAD * at_once
        if waiting.mean_s is None:
            began_s = waiting.first_began_s
            is_long = began_s is not None and now_s - began_s >= _PATIENCE_S
            return 1 if is_long or not is_full else 0
        if waiting.mean_s >= _ALONE_S:
            return 1
        if is_full:
            return 0
        mean_s = max(waiting.mean_s, 1e-4)
        # The last ones are shared out evenly, but not in tasks that take Ray longer than their work.
        each, left = -(-len(waiting.jobs) // at_once), -(-len(waiting.jobs) // (_AHEAD * at_once))
        fair = max(left, min(each, int(_LEAST_S / mean_s)))
        return max(1, min(_MOST, fair, int(BUNDLE_S / mean_s)))


def _kind(job: Wanted) -> Kind:
    return job.need, job.kind
