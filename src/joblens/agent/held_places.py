"""How many places of a worker its jobs take. A slot runs short jobs one behind the other, in one place."""

from collections import Counter

from joblens.agent.claimed_jobs import ClaimedJob

_AHEAD_S = 0.1  # of work that may lie behind what runs, for each place
_MOST_AHEAD = 24
_NEWS = 0.1  # what the last duration counts for in the mean


class HeldPlaces:
    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._alone = 0  # places of jobs that are sessions
        self._in_slots: Counter[int] = Counter()  # by weight: jobs that have a place
        self._behind = 0  # jobs of weight 1 that wait behind others in slots
        self._mean_s: float | None = None  # of jobs in slots

    @property
    def free(self) -> int:
        used = self._alone + sum(weight * count for weight, count in self._in_slots.items())
        return max(0, self._concurrency - used)

    @property
    def appetite(self) -> int:
        """How many more jobs may be claimed. Those that only go behind others are claimed many at once."""
        most = self._most_behind()
        room = most - self._behind
        return self.free + (room if room > 0 and (self.free or 2 * room >= most) else 0)

    def _most_behind(self) -> int:
        if self._mean_s is None or not self._in_slots[1]:
            return 0
        return self._in_slots[1] * min(_MOST_AHEAD, int(_AHEAD_S / max(self._mean_s, 1e-4)))

    def fits(self, held: ClaimedJob) -> bool:
        return held.weight <= self.free or (
            held.is_plain and held.weight == 1 and self._behind < self._most_behind()
        )

    def take(self, held: ClaimedJob) -> bool:
        """-> whether it goes behind another one"""
        if not held.is_plain:
            self._alone += held.weight
        elif held.weight <= self.free:
            self._in_slots[held.weight] += 1
        else:
            self._behind += 1
            return True
        return False

    def leave(self, held: ClaimedJob, duration_s: float | None) -> None:
        """`duration_s`: of a job that ran."""
        if not held.is_plain:
            self._alone -= held.weight
            return
        if held.weight == 1 and self._behind:
            self._behind -= 1  # that one has the place now
        else:
            self._in_slots[held.weight] -= 1
        if duration_s is not None:
            mean_s = self._mean_s
            self._mean_s = duration_s if mean_s is None else mean_s + _NEWS * (duration_s - mean_s)
