"""Ready jobs, in one bucket for each kind of requirements, so that only the head of a bucket is ever looked
at: where the head does not fit, nothing of its bucket does."""

from bisect import bisect_left, insort
from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from joblens.engine.schedule.capacity import NOTHING, Shape, shape_of
from joblens.engine.schedule.order import Order
from joblens.model.jobs.job import Requirements

RECENT = 0.2  # weight of the newest duration in the mean
_INDEX_BITS = 32  # a position is the job's number in the order, then its index
_INDEX_MASK = (1 << _INDEX_BITS) - 1


class Bucket:
    """Jobs of one kind: what waits, what runs, and how long they have taken of late."""

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
        is_elsewhere: bool = False,
        has_container: bool = False,
    ) -> None:
        self.number = number
        self.requirements = requirements
        self.shape: Shape = NOTHING if is_elsewhere else shape_of(requirements)
        self.is_limited = is_limited
        self.has_container = has_container
        self.can_fit = True
        self.positions: list[int] = []  # heap
        self.waits_since = 0  # how many jobs had been started in all when it last had its turn
        self.lanes = 0  # places taken in the room
        self.behind = 0  # handed over, for the place of one that runs
        self.mean_s = 0.0
        self.seen = 0

    def observe(self, duration_s: float) -> None:
        self.seen += 1
        weight = max(RECENT, 1 / self.seen)
        self.mean_s += weight * (duration_s - self.mean_s)


class Waiting:
    """`heads`: the position of the first job of each bucket that has one, ascending."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self.heads: list[int] = []
        self._gone: set[int] = set()  # positions taken out, still inside a heap
        self._shelved: set[int] = set()  # buckets whose time is over
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
        """The head of the bucket, which must have one."""
        position = heappop(bucket.positions)
        self._forget_head(position)
        self.count -= 1
        self._show_head(bucket)
        return self.index_at(position)

    def remove(self, index: int, bucket: Bucket) -> None:
        """For good: it is not added again."""
        position = self._position(index)
        if bucket.positions[0] == position and bucket.number not in self._shelved:
            self.pop(bucket)
            return
        self.count -= 1
        self._gone.add(position)

    def shelve(self, bucket: Bucket) -> None:
        """Nothing of it will start any more."""
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
        place = bisect_left(self.heads, position)
        assert self.heads[place] == position
        del self.heads[place]
