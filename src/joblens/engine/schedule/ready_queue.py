"""Ready queue: jobs in a fixed order, in one bucket per kind of requirements."""

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush

from joblens.engine.schedule.capacity import NOTHING, Choices, RunCapacity, Shape, shape_of, whole_of
from joblens.model.jobs.job import Requirements
from joblens.model.runs.plan import Plan, PlannedJob

GAP = 1 << 32  # between the numbers of two jobs, for jobs that are added later
_PART = 1 << 10  # share of a gap that one job takes: later jobs mostly follow it
# Amounts by which each jobs_sort_method sorts, the largest first.
_SORTED_BY = {
    "none": (),
    "gpus_runtime_memory": ("gpus", "timeout_s", "memory_bytes"),
    "gpus_memory_runtime": ("gpus", "memory_bytes", "timeout_s"),
}


class Dependents:
    """Dependents of each job as two arrays: those of job i are `targets[starts[i]:starts[i + 1]]`. Jobs
    that were added later have lists."""

    __slots__ = ("later", "starts", "targets")

    def __init__(self, plan: Plan) -> None:
        jobs = plan.jobs
        counts = array("i", bytes(4 * (len(jobs) + 1)))
        for job in jobs:
            for needed in job.depends_on:
                counts[needed + 1] += 1
        for position in range(1, len(counts)):
            counts[position] += counts[position - 1]
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
    """Returns the expected duration of each job: from history or its runtime, otherwise the mean of the
    others."""
    known = [
        expected_s.get(index, job.requirements.timeout_s) if expected_s else job.requirements.timeout_s
        for index, job in enumerate(plan.jobs)
    ]
    known_weights = [weight for weight in known if weight is not None]
    usual = sum(known_weights) / len(known_weights) if known_weights else 1.0
    return [usual if weight is None else weight for weight in known]


def upward_ranks(plan: Plan, dependents: Dependents, own: list[float]) -> list[float]:
    """Returns the length of the longest chain that begins with each job."""
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
    """Returns the same for jobs from `first` on: chains among themselves."""
    own = [job.requirements.timeout_s or usual_s for job in plan.jobs[first:]]
    ranks = list(own)
    inside = [[one - first for one in job.depends_on if one >= first] for job in plan.jobs[first:]]
    unseen = [0] * len(own)
    for needed in (one for each in inside for one in each):
        unseen[needed] += 1
    ends = [position for position, count in enumerate(unseen) if count == 0]
    while ends:
        position = ends.pop()
        for needed in inside[position]:
            ranks[needed] = max(ranks[needed], own[needed] + ranks[position])
            unseen[needed] -= 1
            if unseen[needed] == 0:
                ends.append(needed)
    return ranks


class Order:
    """Order of jobs: by priority, then the longest chain (it determines the duration of the run), then the
    largest (small ones fill gaps), then as written. `jobs_sort_method` replaces the criteria between
    priority and position. `numbers` ascend in that order; a job that is added later gets a number between
    its neighbours, so that nothing moves."""

    def __init__(self, plan: Plan, ranks: Sequence[float], size_of: Callable[[int], float]) -> None:
        self._plan = plan
        self._ranks = array("d", ranks)
        self._size_of = size_of
        # Sizes at the time each job was added: retries and growing capacity change sizes, but not
        # positions.
        self._sizes = array("d", (size_of(index) for index in range(len(plan.jobs))))
        self._amounts = _SORTED_BY.get(str(plan.other.get("jobs_sort_method")))
        keys = [self._key(index) for index in range(len(plan.jobs))]
        self._indexes = array("i", sorted(range(len(keys)), key=keys.__getitem__))
        self.numbers = array("q", bytes(8 * len(keys)))
        self._number()

    def add(self, ranks: Sequence[float]) -> bool:
        """Adds jobs of the plan. Returns True if no gap was left, so that all numbers are new."""
        is_renumbered = False
        for rank in ranks:
            index = len(self._ranks)
            self._ranks.append(rank)
            self._sizes.append(self._size_of(index))
            self.numbers.append(0)
            position = bisect_right(self._indexes, self._key(index), key=self._key)
            self._indexes.insert(position, index)
            number = self._number_at(position)
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

    def _number_at(self, position: int) -> int | None:
        """Returns a number between its neighbours, or None if there is none."""
        before = self.numbers[self._indexes[position - 1]] if position else None
        after = self.numbers[self._indexes[position + 1]] if position + 1 < len(self._indexes) else None
        if before is None:
            return 0 if after is None else after - GAP
        if after is None:
            return before + GAP
        gap = after - before
        return before + max(1, gap // _PART) if gap > 1 else None

    def _number(self) -> None:
        for position, index in enumerate(self._indexes):
            self.numbers[index] = position * GAP


RECENT = 0.2  # weight of the newest duration in the mean
_INDEX_BITS = 32  # a position is the job's number in the order, then its index
_INDEX_MASK = (1 << _INDEX_BITS) - 1


class Bucket:
    """Jobs of one kind: waiting, running, and their recent durations."""

    __slots__ = (
        "behind", "can_fit", "has_container", "is_limited", "lanes", "mean_s", "number",
        "positions", "requirements", "seen", "shape", "waits_since",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        requirements: Requirements,
        *,
        is_limited: bool,
        is_elsewhere: bool,
        has_container: bool,
    ) -> None:
        self.number = number
        self.requirements = requirements
        self.shape: Shape = NOTHING if is_elsewhere else shape_of(requirements)
        self.is_limited = is_limited
        self.has_container = has_container
        self.can_fit = True
        self.positions: list[int] = []  # heap
        self.waits_since = 0  # number of starts in the run when it last had its turn
        self.lanes = 0  # jobs that take capacity
        self.behind = 0  # started behind a running one
        self.mean_s = 0.0
        self.seen = 0

    def observe(self, duration_s: float) -> None:
        self.seen += 1
        weight = max(RECENT, 1 / self.seen)
        self.mean_s += weight * (duration_s - self.mean_s)


class Waiting:
    """Waiting jobs. `heads`: the position of the first job of each bucket, ascending."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self.heads: list[int] = []
        self._gone: set[int] = set()  # removed positions that are still in a heap
        self._shelved: set[int] = set()  # buckets that have no time left
        self.count = 0

    def index_at(self, position: int) -> int:
        return position & _INDEX_MASK

    def _position(self, index: int) -> int:
        return (self._order.numbers[index] << _INDEX_BITS) | index

    def reorder(self, buckets: Iterable[Bucket]) -> None:
        """All numbers of the order are new."""
        self.heads = []
        gone = {self.index_at(position) for position in self._gone}
        self._gone = {self._position(index) for index in gone}
        for bucket in buckets:
            bucket.positions = [self._position(self.index_at(one)) for one in bucket.positions]
            heapify(bucket.positions)
            if bucket.positions and bucket.number not in self._shelved:
                insort(self.heads, bucket.positions[0])

    def add(self, index: int, bucket: Bucket) -> None:
        position = self._position(index)
        self.count += 1
        heap = bucket.positions
        old = heap[0] if heap else None
        heappush(heap, position)
        if bucket.number in self._shelved or heap[0] == old:
            return
        if old is not None:
            self._forget_head(old)
        insort(self.heads, heap[0])

    def pop(self, bucket: Bucket) -> int:
        """Removes and returns the head of the bucket, which must have one."""
        position = heappop(bucket.positions)
        self._forget_head(position)
        self.count -= 1
        self._show_head(bucket)
        return self.index_at(position)

    def remove(self, index: int, bucket: Bucket) -> None:
        """Removes it permanently: it is not added again."""
        position = self._position(index)
        if bucket.positions[0] == position and bucket.number not in self._shelved:
            self.pop(bucket)
            return
        self.count -= 1
        self._gone.add(position)

    def shelve(self, bucket: Bucket) -> None:
        """No job of it will start."""
        if bucket.number in self._shelved:
            return
        self._forget_head(bucket.positions[0])
        self._shelved.add(bucket.number)

    def _show_head(self, bucket: Bucket) -> None:
        heap = bucket.positions
        while heap and heap[0] in self._gone:
            self._gone.discard(heappop(heap))
        if heap:
            insort(self.heads, heap[0])

    def _forget_head(self, position: int) -> None:
        index = bisect_left(self.heads, position)
        assert self.heads[index] == position
        del self.heads[index]


class Buckets:
    def __init__(self, plan: Plan, offer: RunCapacity, choices: Choices) -> None:
        self._whole = whole_of(offer)
        self._enforce = choices.enforce
        self._limit_resources = plan.execution.limit_resources
        self._buckets: list[Bucket] = []
        self._numbers: dict[tuple[Requirements, bool, bool], int] = {}
        self._served = choices.served_labels
        self.least = self._whole  # smallest amount of each resource that a job takes
        self._plan = plan
        self._of_job = array("i", (self._number_of(job, job.requirements) for job in plan.jobs))

    def add(self, jobs: Sequence[PlannedJob]) -> None:
        """Adds the next jobs of the plan."""
        self._of_job.extend(self._number_of(job, job.requirements) for job in jobs)

    def all(self) -> Sequence[Bucket]:
        return self._buckets

    def of(self, index: int) -> Bucket:
        return self._buckets[self._of_job[index]]

    def change(self, index: int, requirements: Requirements) -> None:
        """Changes the requirements of the next attempt."""
        self._of_job[index] = self._number_of(self._plan.jobs[index], requirements)

    def grow(self, whole: Shape) -> None:
        """Raises the capacity: attempts that need more than any before may fit now."""
        self._whole = whole

    def size_of(self, index: int) -> float:
        return self.of(index).shape.share_of(self._whole)

    def _number_of(self, job: PlannedJob, requirements: Requirements) -> int:
        is_elsewhere = bool(job.label) and self._served is not None and job.label not in self._served
        kind = (requirements, is_elsewhere, job.container is not None)
        number = self._numbers.get(kind)
        if number is not None:
            return number
        number = self._numbers[kind] = len(self._buckets)
        bucket = Bucket(
            number,
            requirements,
            is_limited=self._is_limited(requirements),
            is_elsewhere=is_elsewhere,
            has_container=job.container is not None,
        )
        bucket.can_fit = bucket.shape.within(self._whole)
        self._buckets.append(bucket)
        self.least = Shape(*map(min, self.least, bucket.shape))
        return number

    def _is_limited(self, asked: Requirements) -> bool:
        """Returns whether each job needs its own set-up."""
        if not self._enforce:
            return False
        limits = (asked.cpus, asked.memory_bytes, asked.pids) if self._limit_resources else (asked.pids,)
        return asked.timeout_s is not None or any(limit is not None for limit in limits)
