"""Who holds what of the room, and until when, as far as one can tell."""

from collections.abc import Iterator

from joblens.engine.schedule.capacity import NOTHING, RunCapacity, Shape
from joblens.engine.schedule.packing import FreeCapacity
from joblens.engine.schedule.waiting import Bucket


class Held:
    """A job that was handed over. `yields_to`: the job that was promised its start no matter what, when this
    one was let past it; -1: none."""

    __slots__ = ("bucket", "devices", "expected_s", "is_behind", "since_s", "yields_to")

    def __init__(self, bucket: Bucket, since_s: float, expected_s: float | None) -> None:
        self.bucket = bucket
        self.since_s = since_s
        self.expected_s = expected_s
        self.devices: tuple[str, ...] = ()
        self.is_behind = False  # has no place of its own yet
        self.yields_to = -1

    def ends_s(self, now_s: float) -> float:
        """Nothing known: it will go on for as long as it has run."""
        if self.expected_s is None:
            return now_s + max(now_s - self.since_s, 1e-3)
        return max(self.since_s + self.expected_s, now_s)


class Occupancy:
    def __init__(self, offer: RunCapacity) -> None:
        self.room = FreeCapacity(offer)
        self.most_jobs = offer.most_jobs
        self.held: dict[int, Held] = {}

    def take(
        self,
        index: int,
        bucket: Bucket,
        now_s: float,
        expected_s: float | None,
        devices: tuple[str, ...] = (),
    ) -> Held:
        held = Held(bucket, now_s, expected_s)
        held.devices = self.room.take(bucket.shape, devices)
        bucket.lanes += 1
        self.held[index] = held
        return held

    def line_up(self, index: int, bucket: Bucket, now_s: float, expected_s: float | None) -> None:
        """It will have the place of a job of the same shape when that ends."""
        held = Held(bucket, now_s, expected_s)
        held.is_behind = True
        bucket.behind += 1
        self.held[index] = held

    def began(self, index: int, now_s: float) -> None:
        held = self.held[index]
        held.since_s = now_s
        held.is_behind = False

    def leave(self, index: int) -> None:
        """Which of those behind has its place now is not known until one begins; that one has it is."""
        held = self.held.pop(index)
        bucket = held.bucket
        if bucket.behind:
            bucket.behind -= 1
            return
        bucket.lanes -= 1
        self.room.give_back(bucket.shape, held.devices)

    def expected_ends(self, now_s: float) -> Iterator[tuple[float, Shape]]:
        return ((held.ends_s(now_s), held.bucket.shape) for held in self.held.values() if not held.is_behind)

    def let_past(self, index: int) -> tuple[Shape, int]:
        """What those hold that were let past this job after it was promised its start; how many they are."""
        shape, count = NOTHING, 0
        for held in self.held.values():
            if held.yields_to == index:
                shape, count = shape.plus(held.bucket.shape), count + 1
        return shape, count
