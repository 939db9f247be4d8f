"""What is free, and when the first job that has to wait will have its room (EASY backfill)."""

from collections.abc import Iterable
from typing import NamedTuple

from joblens.engine.schedule.capacity import NOTHING, RunCapacity, Shape, whole_of


class FreeCapacity:
    """What is free of the offer. Devices go to jobs by name, the first free ones in the order offered."""

    __slots__ = ("_device_places", "free", "free_devices", "free_slots", "whole")

    def __init__(self, offer: RunCapacity) -> None:
        self.whole = whole_of(offer)
        self.free = self.whole
        self.free_slots = offer.most_jobs if offer.most_jobs is not None else 1 << 40
        self.free_devices = list(offer.gpus)
        self._device_places = {device: place for place, device in enumerate(offer.gpus)}

    def grow(self, whole: Shape) -> None:
        """It is that much now, in no resource less than before."""
        more = Shape(*(new - old for new, old in zip(whole, self.whole, strict=True)))
        self.whole = whole
        self.free = self.free.plus(more)

    def fits(self, need: Shape) -> bool:
        return need == NOTHING or (self.free_slots > 0 and need.within(self.free))

    def take(self, need: Shape, devices: tuple[str, ...] = ()) -> tuple[str, ...]:
        """`devices`: those it has already (a job that was found running)."""
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
            known = [device for device in devices if device in self._device_places]
            self.free_devices = sorted(self.free_devices + known, key=self._device_places.__getitem__)


class Reservation(NamedTuple):
    """When the job it is for can start at the latest, and what it leaves free then."""

    at_s: float
    spare: Shape
    spare_slots: int


def reserve(
    need: Shape, room: FreeCapacity, running: Iterable[tuple[float, Shape]], now_s: float
) -> Reservation:
    """`running`: when each is expected to end, and what it will free."""
    free, slots, at_s = room.free, room.free_slots, now_s
    for ends_s, held in sorted(running):
        if slots > 0 and need.within(free):
            break
        free, slots, at_s = free.plus(held), slots + 1, max(now_s, ends_s)
    if slots <= 0 or not need.within(free):
        return Reservation(now_s, NOTHING, 0)
    left = Shape(
        free.cpu_thousandths - need.cpu_thousandths,
        free.memory_bytes - need.memory_bytes,
        free.gpus - need.gpus,
    )
    return Reservation(at_s, left, slots - 1)
