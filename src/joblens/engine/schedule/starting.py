"""Start of ready jobs: which begin now, with ageing, time estimates and run-ahead of tiny jobs.

Those that begin the longest chains come first, so a job that needs much room could wait for all of the
others: after a while each kind of job has its turn, see `ageing`.

What is counted are starts, not seconds: short jobs can wait for less time than long ones. How many are let
past grows with how many run at a time, so that the room that is kept free for a large job, about once what
runs at a time, stays small against the work in between; and with how many kinds wait, or turns would take the
place of the order. Only among jobs of the same priority.
"""

from collections.abc import Mapping, Sequence

from joblens.engine.schedule.backfill import PATIENCE, Backfill, Occupancy
from joblens.engine.schedule.capacity import NOTHING, Ahead, Choices, RunCapacity
from joblens.engine.schedule.events import StartAttempt
from joblens.engine.schedule.job_table import JobTable
from joblens.engine.schedule.ready_queue import (
    Bucket,
    Buckets,
    Order,
    Waiting,
    added_ranks,
    upward_ranks,
    weights,
)
from joblens.model.runs.plan import Plan, PlannedJob
from joblens.model.runs.run import JobState

ROUNDS = 16  # how often everything that runs at a time may be replaced before it is someone else's turn
TURNS = 2  # that every other kind may have meanwhile
MOST_LOOKED_AT = 256  # kinds of jobs


class Ageing:
    def __init__(self, plan: Plan, buckets: Buckets, waiting: Waiting) -> None:
        self._jobs = plan.jobs
        self._buckets = buckets
        self._waiting = waiting
        self._starts = 0
        self._look_at = PATIENCE  # no bucket is due before so many starts

    def begins_to_wait(self, bucket: Bucket) -> None:
        bucket.waits_since = self._starts

    def had_its_turn(self, bucket: Bucket) -> None:
        self._starts += 1
        bucket.waits_since = self._starts

    def due(self, running: int) -> Bucket | None:
        """The one that has waited longest, when that is too long."""
        if self._starts < self._look_at:
            return None
        oldest = self._oldest()
        patience = max(PATIENCE, ROUNDS * running, TURNS * len(self._waiting.heads))
        if oldest is not None and self._starts - oldest.waits_since >= patience:
            return oldest
        since = self._starts if oldest is None else oldest.waits_since
        self._look_at = max(self._starts + 1, since + patience)
        return None

    def _oldest(self) -> Bucket | None:
        """Of those whose first job has the highest priority that waits."""
        oldest: Bucket | None = None
        priority: int | None = None
        for position in self._waiting.heads[:MOST_LOOKED_AT]:
            index = self._waiting.index_at(position)
            own = self._jobs[index].priority
            if priority is None:
                priority = own
            elif own < priority:
                break
            bucket = self._buckets.of(index)
            if oldest is None or bucket.waits_since < oldest.waits_since:
                oldest = bucket
        return oldest


LEAST_SHARE = 1 / 3  # of their written time that jobs must need for it to be a guess at all


class Estimates:
    """History first; then as others of its kind took of late; then what was written, by how much of their
    written time others have needed."""

    def __init__(self, known_s: Mapping[int, float]) -> None:
        self._known_s = known_s
        self._seen = 0  # with a written time
        self._shares = 0.0  # of it that they needed, summed

    def observe(self, bucket: Bucket, duration_s: float) -> None:
        bucket.observe(duration_s)
        if bucket.requirements.timeout_s:
            self._seen += 1
            self._shares += min(1.0, duration_s / bucket.requirements.timeout_s)

    def of(self, index: int, bucket: Bucket) -> float | None:
        known = self._known_s.get(index)
        if known is not None:
            return known
        if bucket.seen:
            return bucket.mean_s
        written = bucket.requirements.timeout_s
        if written is None or not self._seen:
            return written
        share = self._shares / self._seen
        return written * share if share >= LEAST_SHARE else None


def how_many_more(bucket: Bucket, ahead: Ahead) -> int:
    """For jobs of this bucket, of which the first one waits for room. The last few are kept back: whichever
    lane is free first shall have them."""
    if bucket.has_container:  # an engine starts it, at once
        return 0
    if (bucket.is_limited and not ahead.limited_too) or bucket.shape.gpus:
        return 0
    if not bucket.seen or bucket.mean_s > ahead.longest_s:
        return 0
    each = ahead.most_each_lane
    if bucket.mean_s * each > ahead.work_s:
        each = max(1, round(ahead.work_s / bucket.mean_s))
    spare = len(bucket.positions) - bucket.lanes
    more = min(each * bucket.lanes - bucket.behind, spare)
    # Half empty before it is filled again: handing over several together costs hardly more than one.
    return more if more > 0 and (more == spare or 2 * more >= each * bucket.lanes) else 0


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
