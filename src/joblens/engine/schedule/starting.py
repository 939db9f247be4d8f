"""Which of the ready jobs start now.

Those that begin the longest chains come first, so a job that needs much room could wait for all of the
others: after a while each kind of job has its turn, see `ageing`."""

from collections.abc import Sequence

from joblens.engine.schedule.ageing import Ageing
from joblens.engine.schedule.backfill import Backfill
from joblens.engine.schedule.capacity import NOTHING, Choices, RunCapacity
from joblens.engine.schedule.estimates import Estimates
from joblens.engine.schedule.events import StartAttempt
from joblens.engine.schedule.job_table import JobTable
from joblens.engine.schedule.occupancy import Occupancy
from joblens.engine.schedule.order import Order, added_ranks, upward_ranks, weights
from joblens.engine.schedule.run_ahead import how_many_more
from joblens.engine.schedule.shapes import Buckets
from joblens.engine.schedule.waiting import Bucket, Waiting
from joblens.model.runs.plan import PlannedJob
from joblens.model.runs.run import JobState

DEPTH = 256  # kinds of jobs that are looked at for one event, however many there are


class Starter:
    def __init__(self, table: JobTable, offer: RunCapacity, choices: Choices) -> None:
        plan = table.plan
        self.buckets = Buckets(plan, offer, choices)
        self.occupancy = Occupancy(offer)
        self._table = table
        own_s = weights(plan, choices.expected_s)
        self._usual_s = sum(own_s) / len(own_s) if own_s else 1.0
        self._order = Order(plan, upward_ranks(plan, table.dependents, own_s), self.buckets.size_of)
        self._waiting = Waiting(self._order)
        self._backfill = Backfill(self.occupancy)
        self._ageing = Ageing(plan, self.buckets, self._waiting)
        self._estimates = Estimates(choices.expected_s)
        self._may_go_ahead = choices.may_go_ahead
        self._ahead = choices.ahead
        self._time_s = offer.time_s
        self._until_s: float | None = None

    def begin(self, now_s: float) -> None:
        if self._time_s is not None:
            self._until_s = now_s + self._time_s
        for index in self.occupancy.held:
            self.occupancy.began(index, now_s)

    def add(self, index: int) -> None:
        """It is ready."""
        bucket = self.buckets.of(index)
        if not bucket.positions:
            self._ageing.begins_to_wait(bucket)
        self._waiting.add(index, bucket)
        if not bucket.can_fit:
            self._waiting.shelve(bucket)

    def add_jobs(self, jobs: Sequence[PlannedJob], first: int) -> None:
        """The plan has got them; `first`: the index of the first one."""
        self.buckets.add(jobs)
        if self._order.add(added_ranks(self._table.plan, first, self._usual_s)):
            self._waiting.reorder(self.buckets.all())

    def remove(self, index: int) -> None:
        self._waiting.remove(index, self.buckets.of(index))

    def adopt(self, index: int, devices: tuple[str, ...]) -> None:
        """It was found running."""
        self.occupancy.take(index, self.buckets.of(index), 0.0, self._expected_s(index), devices)

    def observe(self, index: int, duration_s: float) -> None:
        self._estimates.observe(self.buckets.of(index), duration_s)

    def has_time(self, bucket: Bucket, now_s: float) -> bool:
        if self._until_s is None:
            return True
        left_s = self._until_s - now_s
        return left_s > 0 and (bucket.requirements.timeout_s or 0.0) <= left_s

    def fill(self, now_s: float) -> list[StartAttempt]:
        """Starts what fits, in order; `first` is the first that does not, or whose turn it is."""
        heads, place, first = self._waiting.heads, 0, -1
        room = self.occupancy.room
        starts: list[StartAttempt] = []
        self._backfill.look_again()
        due = self._ageing.due(len(self.occupancy.held))
        if due is not None and self.has_time(due, now_s):
            if room.fits(due.shape):
                starts.append(self._start(due, -1, now_s))
            else:
                first = self._waiting.index_at(due.positions[0])
        while place < min(len(heads), DEPTH):
            index = self._waiting.index_at(heads[place])
            bucket = self.buckets.of(index)
            if not self.has_time(bucket, now_s):
                self._waiting.shelve(bucket)
            elif bucket.shape == NOTHING:
                starts.append(self._start(bucket, -1, now_s))
            elif room.fits(bucket.shape) and (first < 0 or self._may_pass(first, index, now_s)):
                starts.append(self._start(bucket, first, now_s))
            else:
                first = index if first < 0 else first
                if self._is_full():
                    break
                place += 1
        if first >= 0 and self._may_go_ahead:
            starts += self._run_ahead(self.buckets.of(first), now_s)
        return starts

    def _is_full(self) -> bool:
        """Nothing that waits could start. Jobs that run elsewhere always can."""
        least, room = self.buckets.least, self.occupancy.room
        return least != NOTHING and (room.free_slots <= 0 or not least.within(room.free))

    def _may_pass(self, first: int, index: int, now_s: float) -> bool:
        need, first_need = self.buckets.of(index).shape, self.buckets.of(first).shape
        return self._backfill.allows(first, first_need, need, self._expected_s(index), now_s)

    def _start(self, bucket: Bucket, first: int, now_s: float) -> StartAttempt:
        index = self._waiting.pop(bucket)
        self._ageing.had_its_turn(bucket)
        held = self.occupancy.take(index, bucket, now_s, self._expected_s(index))
        self._backfill.started(index)
        if first >= 0:
            self._backfill.passed(first, held, now_s)
        return StartAttempt(index, self._count_attempt(index), bucket.requirements, held.devices)

    def _run_ahead(self, bucket: Bucket, now_s: float) -> list[StartAttempt]:
        starts = []
        for _ in range(how_many_more(bucket, self._ahead)):
            index = self._waiting.pop(bucket)
            self._ageing.had_its_turn(bucket)
            self.occupancy.line_up(index, bucket, now_s, self._expected_s(index))
            starts.append(StartAttempt(index, self._count_attempt(index), bucket.requirements, behind=True))
        return starts

    def _count_attempt(self, index: int) -> int:
        self._table.set_state(index, JobState.PENDING)
        self._table.attempts[index] += 1
        return self._table.attempts[index]

    def _expected_s(self, index: int) -> float | None:
        return self._estimates.of(index, self.buckets.of(index))
