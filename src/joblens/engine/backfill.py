"""Lets jobs past the first one that has to wait for room, as long as that one loses nothing by it.

As far as durations are known or have been seen, it has a reservation: whoever passes must be gone by then, or
need only what the reservation leaves. Durations may be wrong, so after `PATIENCE` jobs have passed it is
promised its start: from then on it and all who pass must fit the machine together, so that it starts when the
last of those has ended that ran before."""

from joblens.engine.occupancy import Held, Occupancy
from joblens.engine.offer import Shape
from joblens.engine.packing import Reservation, reserve

PATIENCE = 32


class Backfill:
    def __init__(self, occupancy: Occupancy) -> None:
        self._occupancy = occupancy
        self._overtaken: dict[int, int] = {}
        self._reservation: Reservation | None = None

    def look_again(self) -> None:
        """Something ended or became ready."""
        self._reservation = None

    def started(self, index: int) -> None:
        self._overtaken.pop(index, None)

    def allows(
        self, first: int, first_need: Shape, need: Shape, expected_s: float | None, now_s: float
    ) -> bool:
        """Whether a job that fits now may start before `first`."""
        if self._overtaken.get(first, 0) >= PATIENCE:
            return self._fits_beside(first, first_need, need)
        if self._reservation is None:
            ends = self._occupancy.expected_ends(now_s)
            self._reservation = reserve(first_need, self._occupancy.room, ends, now_s)
        promised = self._reservation
        if expected_s is not None and now_s + expected_s <= promised.at_s:
            return True
        return promised.spare_slots > 0 and need.within(promised.spare)

    def passed(self, first: int, held: Held) -> None:
        count = self._overtaken.get(first, 0)
        self._overtaken[first] = count + 1
        if count >= PATIENCE:
            held.yields_to = first
        self._reservation = None  # the room has changed

    def _fits_beside(self, first: int, first_need: Shape, need: Shape) -> bool:
        past, count = self._occupancy.let_past(first)
        most = self._occupancy.most_jobs
        if most is not None and count + 2 > most:
            return False
        return first_need.plus(need).plus(past).within(self._occupancy.room.whole)
