"""In which order ready jobs are looked at: a fixed place for each job, worked out when the plan gets it."""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence

from joblens.model.runs.plan import Plan

GAP = 1 << 32  # between the numbers of two jobs, for jobs that come later
_PART = 1 << 10  # of a gap that one job takes: later ones mostly come behind it
# Amounts by which each jobs_sort_method puts jobs in order, the largest first.
_SORTED_BY = {
    "none": (),
    "gpus_runtime_memory": ("gpus", "timeout_s", "memory_bytes"),
    "gpus_memory_runtime": ("gpus", "memory_bytes", "timeout_s"),
}


class Dependents:
    """Who waits for whom, as two arrays: those behind job i are `targets[starts[i]:starts[i + 1]]`. Jobs that
    came later are listed beside them."""

    __slots__ = ("later", "starts", "targets")

    def __init__(self, plan: Plan) -> None:
        jobs = plan.jobs
        counts = array("i", bytes(4 * (len(jobs) + 1)))
        for job in jobs:
            for needed in job.depends_on:
                counts[needed + 1] += 1
        for place in range(1, len(counts)):
            counts[place] += counts[place - 1]
        self.starts = counts
        self.targets = array("i", bytes(4 * counts[-1]))
        filled = array("i", counts)
        for index, job in enumerate(jobs):
            for needed in job.depends_on:
                self.targets[filled[needed]] = index
                filled[needed] += 1
        self.later: dict[int, list[int]] = {}

    def add(self, index: int, depends_on: Sequence[int]) -> None:
        for needed in depends_on:
            self.later.setdefault(needed, []).append(index)

    def of(self, index: int) -> Sequence[int]:
        if index + 1 >= len(self.starts):
            return self.later.get(index, ())
        known = self.targets[self.starts[index] : self.starts[index + 1]]
        return [*known, *self.later[index]] if index in self.later else known


def weights(plan: Plan, expected_s: Mapping[int, float]) -> list[float]:
    """How long each job is taken to run: what history or its written runtime says, else as the others do."""
    known = [
        expected_s.get(index, job.requirements.timeout_s) if expected_s else job.requirements.timeout_s
        for index, job in enumerate(plan.jobs)
    ]
    told = [weight for weight in known if weight is not None]
    usual = sum(told) / len(told) if told else 1.0
    return [usual if weight is None else weight for weight in known]


def upward_ranks(plan: Plan, dependents: Dependents, own: list[float]) -> list[float]:
    """The length of the longest chain that begins with the job."""
    if not dependents.targets:
        return own
    ranks = list(own)
    unseen = array("i", (len(dependents.of(index)) for index in range(len(own))))
    ends = [index for index, count in enumerate(unseen) if count == 0]
    while ends:
        index = ends.pop()
        rank = ranks[index]
        for needed in plan.jobs[index].depends_on:
            ranks[needed] = max(ranks[needed], own[needed] + rank)
            unseen[needed] -= 1
            if unseen[needed] == 0:
                ends.append(needed)
    return ranks


def added_ranks(plan: Plan, first: int, usual_s: float) -> list[float]:
    """The same for jobs from `first` on: chains among themselves."""
    own = [job.requirements.timeout_s or usual_s for job in plan.jobs[first:]]
    ranks = list(own)
    inside = [[one - first for one in job.depends_on if one >= first] for job in plan.jobs[first:]]
    unseen = [0] * len(own)
    for needed in (one for each in inside for one in each):
        unseen[needed] += 1
    ends = [place for place, count in enumerate(unseen) if count == 0]
    while ends:
        place = ends.pop()
        for needed in inside[place]:
            ranks[needed] = max(ranks[needed], own[needed] + ranks[place])
            unseen[needed] -= 1
            if unseen[needed] == 0:
                ends.append(needed)
    return ranks


class Order:
    """Jobs by priority, then the longest chain (it decides how long the run takes), then the largest (small
    ones fill the gaps), then as written. `jobs_sort_method` replaces what stands between priority and as
    written. `numbers` ascend in that order; a job that comes later gets one between those of its neighbours,
    so that nothing moves."""

    def __init__(self, plan: Plan, ranks: Sequence[float], size_of: Callable[[int], float]) -> None:
        self._plan = plan
        self._ranks = array("d", ranks)
        self._size_of = size_of
        # As they were when each job came: sizes change with retries and offers, and positions do not.
        self._sizes = array("d", (size_of(index) for index in range(len(plan.jobs))))
        self._amounts = _SORTED_BY.get(str(plan.other.get("jobs_sort_method")))
        keys = [self._key(index) for index in range(len(plan.jobs))]
        self._indexes = array("i", sorted(range(len(keys)), key=keys.__getitem__))
        self.numbers = array("q", bytes(8 * len(keys)))
        self._number()

    def add(self, ranks: Sequence[float]) -> bool:
        """Of jobs that the plan has got since. True: there was no gap left, and all numbers are new."""
        is_renumbered = False
        for rank in ranks:
            index = len(self._ranks)
            self._ranks.append(rank)
            self._sizes.append(self._size_of(index))
            self.numbers.append(0)
            place = bisect_right(self._indexes, self._key(index), key=self._key)
            self._indexes.insert(place, index)
            number = self._number_at(place)
            if number is None:
                self._number()
                is_renumbered = True
            else:
                self.numbers[index] = number
        return is_renumbered

    def _key(self, index: int) -> tuple[float, ...]:
        job = self._plan.jobs[index]
        if self._amounts is None:
            return -job.priority, -self._ranks[index], -self._sizes[index], index
        return -job.priority, *(-(getattr(job.requirements, name) or 0) for name in self._amounts), index

    def _number_at(self, place: int) -> int | None:
        """Between its neighbours; None: there is nothing between them."""
        before = self.numbers[self._indexes[place - 1]] if place else None
        after = self.numbers[self._indexes[place + 1]] if place + 1 < len(self._indexes) else None
        if before is None:
            return 0 if after is None else after - GAP
        if after is None:
            return before + GAP
        gap = after - before
        return before + max(1, gap // _PART) if gap > 1 else None

    def _number(self) -> None:
        for place, index in enumerate(self._indexes):
            self.numbers[index] = place * GAP
