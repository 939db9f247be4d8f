"""Start of ready jobs: which start now, with ageing, time estimates and run-ahead of tiny jobs.

Jobs with the longest chains come first, so a large job could wait for all others: after a while each kind
of job gets its turn, see `ageing`.

Ageing counts starts, not seconds: short jobs wait less than long ones. The number of jobs that may pass
grows with the number that run at once, so that the capacity kept free for a large job stays small against
the work in between; and with the number of kinds that wait, because otherwise turns would replace the
order. Only among jobs of the same priority.
"""

from collections.abc import Mapping, Sequence

from joblens.engine.schedule.backfill import MAX_PASSED, Backfill, Occupancy
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

ROUNDS = 16  # how often all running jobs may be replaced before another bucket has its turn
TURNS = 2  # turns of every other kind meanwhile
MAX_READ = 256  # kinds of jobs


class Ageing:
    def __init__(self, plan: Plan, buckets: Buckets, waiting: Waiting) -> None:
        self._jobs = plan.jobs
        self._buckets = buckets
        self._waiting = waiting
        self._starts = 0
        self._next_check_at = MAX_PASSED  # no bucket is due before this number of starts

    def begins_to_wait(self, bucket: Bucket) -> None:
        bucket.waits_since = self._starts

    def had_its_turn(self, bucket: Bucket) -> None:
        self._starts += 1
        bucket.waits_since = self._starts

    def due(self, running: int) -> Bucket | None:
        """Returns the bucket that has waited longest, if too long."""
        if self._starts < self._next_check_at:
            return None
        oldest = self._oldest()
        patience = max(MAX_PASSED, ROUNDS * running, TURNS * len(self._waiting.heads))
        if oldest is not None and self._starts - oldest.waits_since >= patience:
            return oldest
        since = self._starts if oldest is None else oldest.waits_since
        self._next_check_at = max(self._starts + 1, since + patience)
        return None

    def _oldest(self) -> Bucket | None:
        """Considers buckets whose first job has the highest waiting priority."""
        oldest: Bucket | None = None
        priority: int | None = None
        for position in self._waiting.heads[:MAX_READ]:
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


LEAST_SHARE = 1 / 3  # minimum share of their runtime that jobs use, for an estimate


class Estimates:
    """Estimated durations: from history, otherwise recent durations of the bucket, otherwise the runtime in
    the file times the share that other jobs used of theirs."""

    def __init__(self, known_s: Mapping[int, float]) -> None:
        self._known_s = known_s
        self._seen = 0  # jobs with a runtime
        self._shares = 0.0  # sum of the shares that they used

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
    """Returns how many more jobs of this bucket to start behind running ones. The last few are kept back
    for whichever lane is free first."""
    if bucket.has_container:  # the engine starts it at once
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
    # Refill a half-empty lane: starting several together costs hardly more than starting one.
    return more if more > 0 and (more == spare or 2 * more >= each * bucket.lanes) else 0


DEPTH = 256  # buckets considered per event


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
        """Adds a ready job."""
        bucket = self.buckets.of(index)
        if not bucket.positions:
            self._ageing.begins_to_wait(bucket)
        self._waiting.add(index, bucket)
        if not bucket.can_fit:
            self._waiting.shelve(bucket)

    def add_jobs(self, jobs: Sequence[PlannedJob], first: int) -> None:
        """Adds jobs of the plan; `first`: index of the first one."""
        self.buckets.add(jobs)
        if self._order.add(added_ranks(self._table.plan, first, self._usual_s)):
            self._waiting.reorder(self.buckets.all())

    def remove(self, index: int) -> None:
        self._waiting.remove(index, self.buckets.of(index))

    def adopt(self, index: int, devices: tuple[str, ...]) -> None:
        """Adds a job that was found running."""
        self.occupancy.take(index, self.buckets.of(index), 0.0, self._expected_s(index), devices)

    def observe(self, index: int, duration_s: float) -> None:
        self._estimates.observe(self.buckets.of(index), duration_s)

    def has_time(self, bucket: Bucket, now_s: float) -> bool:
        if self._until_s is None:
            return True
        left_s = self._until_s - now_s
        return left_s > 0 and (bucket.requirements.timeout_s or 0.0) <= left_s

    def fill(self, now_s: float) -> list[StartAttempt]:
        """Starts jobs that fit, in order; `first` is the first that does not fit, or whose turn it is."""
        heads, head, first = self._waiting.heads, 0, -1
        capacity = self.occupancy.capacity
        starts: list[StartAttempt] = []
        self._backfill.rescan()
        due = self._ageing.due(len(self.occupancy.held))
        if due is not None and self.has_time(due, now_s):
            if capacity.fits(due.shape):
                starts.append(self._start(due, -1, now_s))
            else:
                first = self._waiting.index_at(due.positions[0])
        while head < min(len(heads), DEPTH):
            index = self._waiting.index_at(heads[head])
            bucket = self.buckets.of(index)
            if not self.has_time(bucket, now_s):
                self._waiting.shelve(bucket)
            elif bucket.shape == NOTHING:
                starts.append(self._start(bucket, -1, now_s))
            elif capacity.fits(bucket.shape) and (first < 0 or self._may_pass(first, index, now_s)):
                starts.append(self._start(bucket, first, now_s))
            else:
                first = index if first < 0 else first
                if self._is_full():
                    break
                head += 1
        if first >= 0 and self._may_go_ahead:
            starts += self._run_ahead(self.buckets.of(first), now_s)
        return starts

    def _is_full(self) -> bool:
        """Returns whether no waiting job could start. Jobs that run elsewhere always can."""
        least, capacity = self.buckets.least, self.occupancy.capacity
        return least != NOTHING and (capacity.free_slots <= 0 or not least.within(capacity.free))

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
