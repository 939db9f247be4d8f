"""Backfill (EASY): free capacity, when the first waiting job fits, and which jobs may pass it.

If durations are known or can be estimated, the job has a reservation: a job that passes must end before it,
or need only what the reservation leaves free. Estimates may be wrong: once the promised time is over, and
if there is nothing to estimate from, passing jobs are counted, and after `MAX_PASSED` of them the waiting job
and all that pass must fit together. So it starts at the latest when the last job has ended that was already
running.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec import Struct

from joblens.engine.schedule.capacity import NOTHING, RunCapacity, Shape, whole_of
from joblens.engine.schedule.ready_queue import Bucket


class FreeCapacity:
    """Free part of the capacity. Devices are assigned by name, the first free ones first."""

    __slots__ = ("_device_indices", "free", "free_devices", "free_slots", "whole")

    def __init__(self, offer: RunCapacity) -> None:
        self.whole = whole_of(offer)
        self.free = self.whole
        self.free_slots = offer.most_jobs if offer.most_jobs is not None else 1 << 40
        self.free_devices = list(offer.gpus)
        self._device_indices = {device: number for number, device in enumerate(offer.gpus)}

    def grow(self, whole: Shape) -> None:
        """Raises the capacity; no resource shrinks."""
        more = Shape(*(new - old for new, old in zip(whole, self.whole, strict=True)))
        self.whole = whole
        self.free = self.free.plus(more)

    def fits(self, need: Shape) -> bool:
        return need == NOTHING or (self.free_slots > 0 and need.within(self.free))

    def take(self, need: Shape, devices: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Takes capacity. `devices`: those that a job already has (it was found running)."""
        if need == NOTHING:  # it runs elsewhere
            return ()
        chosen = devices or tuple(self.free_devices[: need.gpus])
        self.free_devices = [device for device in self.free_devices if device not in chosen]
        self.free_slots -= 1
        free = self.free
        self.free = Shape(
            free.cpu_thousandths - need.cpu_thousandths,
            free.memory_bytes - need.memory_bytes,
            free.gpus - need.gpus,
        )
        return chosen

    def give_back(self, need: Shape, devices: tuple[str, ...]) -> None:
        if need == NOTHING:
            return
        self.free_slots += 1
        self.free = self.free.plus(need)
        if devices:
            known = [device for device in devices if device in self._device_indices]
            self.free_devices = sorted(self.free_devices + known, key=self._device_indices.__getitem__)


class Reservation(NamedTuple):
    """When the job can start at the latest, and what is free then."""

    at_s: float
    spare: Shape
    spare_slots: int


def reserve(
    need: Shape, capacity: FreeCapacity, running: Iterable[tuple[float, Shape]], now_s: float
) -> Reservation:
    """`running`: when each job is expected to end, and what it will free."""
    free, slots, at_s = capacity.free, capacity.free_slots, now_s
    for ends_s, held in sorted(running):
        if slots > 0 and need.within(free):
            break
        free, slots, at_s = free.plus(held), slots + 1, max(now_s, ends_s)
    if slots <= 0 or not need.within(free):
        return Reservation(now_s, NOTHING, 0)
    rest = Shape(
        free.cpu_thousandths - need.cpu_thousandths,
        free.memory_bytes - need.memory_bytes,
        free.gpus - need.gpus,
    )
    return Reservation(at_s, rest, slots - 1)


class Held:
    """A started job. `yields_to`: the job with a promised start that this one was let past; -1: none."""

    __slots__ = ("bucket", "devices", "expected_s", "is_behind", "since_s", "yields_to")

    def __init__(self, bucket: Bucket, since_s: float, expected_s: float | None) -> None:
        self.bucket = bucket
        self.since_s = since_s
        self.expected_s = expected_s
        self.devices: tuple[str, ...] = ()
        self.is_behind = False  # waits behind another job
        self.yields_to = -1

    def ends_s(self, now_s: float) -> float:
        """Returns when it is expected to end; if nothing is known, it runs as long again as it has run."""
        if self.expected_s is None:
            return now_s + max(now_s - self.since_s, 1e-3)
        return max(self.since_s + self.expected_s, now_s)


class Occupancy:
    def __init__(self, offer: RunCapacity) -> None:
        self.capacity = FreeCapacity(offer)
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
        held.devices = self.capacity.take(bucket.shape, devices)
        bucket.lanes += 1
        self.held[index] = held
        return held

    def line_up(self, index: int, bucket: Bucket, now_s: float, expected_s: float | None) -> None:
        """Queues it behind a job of the same shape, whose capacity it will get."""
        held = Held(bucket, now_s, expected_s)
        held.is_behind = True
        bucket.behind += 1
        self.held[index] = held

    def began(self, index: int, now_s: float) -> None:
        held = self.held[index]
        held.since_s = now_s
        held.is_behind = False

    def leave(self, index: int) -> None:
        """Frees capacity. Which of the waiting jobs has it is unknown until one starts."""
        held = self.held.pop(index)
        bucket = held.bucket
        if bucket.behind:
            bucket.behind -= 1
            return
        bucket.lanes -= 1
        self.capacity.give_back(bucket.shape, held.devices)

    def expected_ends(self, now_s: float) -> Iterator[tuple[float, Shape]]:
        return ((held.ends_s(now_s), held.bucket.shape) for held in self.held.values() if not held.is_behind)

    def let_past(self, index: int) -> tuple[Shape, int]:
        """Returns the capacity and number of jobs that were let past this job after its promised start."""
        shape, count = NOTHING, 0
        for held in self.held.values():
            if held.yields_to == index:
                shape, count = shape.plus(held.bucket.shape), count + 1
        return shape, count


MAX_PASSED = 64


class Wait(Struct):
    """A job that had to let others pass."""

    promised_s: float | None = None
    overtaken: int = 0


class Backfill:
    def __init__(self, occupancy: Occupancy) -> None:
        self._occupancy = occupancy
        self._waits: dict[int, Wait] = {}
        self._reservation: Reservation | None = None

    def rescan(self) -> None:
        """Called when something ended or became ready."""
        self._reservation = None

    def started(self, index: int) -> None:
        self._waits.pop(index, None)

    def allows(
        self, first: int, first_need: Shape, need: Shape, expected_s: float | None, now_s: float
    ) -> bool:
        """Returns whether a job that fits now may start before `first`."""
        wait = self._waits.setdefault(first, Wait())
        if wait.overtaken >= MAX_PASSED:
            return self._fits_with(first, first_need, need)
        if expected_s is None:
            return True
        promise = self._reserve(wait, first_need, now_s)
        if now_s + expected_s <= promise.at_s:
            return True
        return promise.spare_slots > 0 and need.within(promise.spare)

    def passed(self, first: int, held: Held, now_s: float) -> None:
        wait = self._waits[first]
        if wait.overtaken >= MAX_PASSED:
            held.yields_to = first
        elif held.expected_s is None or wait.promised_s is None or now_s > wait.promised_s:
            wait.overtaken += 1
        self._reservation = None  # the capacity has changed

    def _reserve(self, wait: Wait, need: Shape, now_s: float) -> Reservation:
        if self._reservation is None:
            ends = self._occupancy.expected_ends(now_s)
            self._reservation = reserve(need, self._occupancy.capacity, ends, now_s)
        if wait.promised_s is None:
            wait.promised_s = self._reservation.at_s
        return self._reservation

    def _fits_with(self, first: int, first_need: Shape, need: Shape) -> bool:
        past, count = self._occupancy.let_past(first)
        most = self._occupancy.most_jobs
        if most is not None and count + 2 > most:
            return False
        return first_need.plus(need).plus(past).within(self._occupancy.capacity.whole)
