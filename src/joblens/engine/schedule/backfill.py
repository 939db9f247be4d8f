"""Lets jobs past the first one that has to wait for room, as long as that one loses nothing by it.

Where durations are known or can be guessed, it has a reservation: whoever passes must be gone by then, or
need only what the reservation leaves. Guesses may be wrong: once the time it was first promised is over, and
where there is nothing to guess from, whoever passes is counted, and after `PATIENCE` of them it and all who
pass must fit the machine together. So it starts at the latest when the last of those has ended that ran
before."""

from msgspec import Struct

from joblens.engine.schedule.capacity import Shape
from joblens.engine.schedule.occupancy import Held, Occupancy
from joblens.engine.schedule.packing import Reservation, reserve

PATIENCE = 64


class Wait(Struct):
    """Of a job that had to let others pass."""

    promised_s: float | None = None
    overtaken: int = 0


class Backfill:
    def __init__(self, occupancy: Occupancy) -> None:
        self._occupancy = occupancy
        self._waits: dict[int, Wait] = {}
        self._reservation: Reservation | None = None

    def look_again(self) -> None:
        """Something ended or became ready."""
        self._reservation = None

    def started(self, index: int) -> None:
        self._waits.pop(index, None)

    def allows(
        self, first: int, first_need: Shape, need: Shape, expected_s: float | None, now_s: float
    ) -> bool:
        """Whether a job that fits now may start before `first`."""
        wait = self._waits.setdefault(first, Wait())
        if wait.overtaken >= PATIENCE:
            return self._fits_beside(first, first_need, need)
        if expected_s is None:
            return True
        promise = self._reserve(wait, first_need, now_s)
        if now_s + expected_s <= promise.at_s:
            return True
        return promise.spare_slots > 0 and need.within(promise.spare)

    def passed(self, first: int, held: Held, now_s: float) -> None:
        wait = self._waits[first]
        if wait.overtaken >= PATIENCE:
            held.yields_to = first
        elif held.expected_s is None or wait.promised_s is None or now_s > wait.promised_s:
            wait.overtaken += 1
        self._reservation = None  # the room has changed

    def _reserve(self, wait: Wait, need: Shape, now_s: float) -> Reservation:
        if self._reservation is None:
            ends = self._occupancy.expected_ends(now_s)
            self._reservation = reserve(need, self._occupancy.room, ends, now_s)
        if wait.promised_s is None:
            wait.promised_s = self._reservation.at_s
        return self._reservation

    def _fits_beside(self, first: int, first_need: Shape, need: Shape) -> bool:
        past, count = self._occupancy.let_past(first)
        most = self._occupancy.most_jobs
        if most is not None and count + 2 > most:
            return False
        return first_need.plus(need).plus(past).within(self._occupancy.room.whole)
