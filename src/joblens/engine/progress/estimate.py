"""Estimate of the remaining time of a run, from the durations of its jobs.

The duration of a job is, in this order: that of the job with this name in earlier runs, that of jobs of the
same entry in this run, the runtime in the file. The rest of the run takes at least as long as its longest
chain, and as long as its CPU time, memory and jobs need with the given capacity; the largest of these is
the estimate. If others decide about the capacity (a cluster), it is what runs now while more jobs wait.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from joblens.model.runs.plan import Plan, PlannedJob
from joblens.model.runs.run import JobState
from joblens.model.runs.workflow_spec import WhenBlockedFails
from joblens.plan.workflows.graph import dependents_of

# New durations change the estimate. Recomputing all jobs is expensive, so with many jobs it is done less
# often.
_CHAIN_AGAIN_S = 10.0
_JOBS_A_SECOND = 1_000
_ENTRIES_A_SECOND = 10_000
_WAITING = (JobState.READY, JobState.PENDING)
_FAILURES = (JobState.FAILED, JobState.TERMINATED, JobState.CANCELED, JobState.PENDING_FAILED)
FROM_HISTORY, FROM_THIS_RUN, FROM_SPEC = "earlier runs", "the jobs so far", "written runtimes"


class Capacity(Struct, frozen=True):
    """Capacity for jobs; None: no bound."""

    cpus: float | None = None
    memory_bytes: int | None = None
    most_jobs: int | None = None


class Estimate(Struct, frozen=True):
    left_s: float | None = None  # None: no duration of a remaining job is known
    sources: tuple[str, ...] = ()
    unknown: int = 0  # remaining jobs of unknown duration: the run takes at least `left_s`


class _Entry:
    """Remaining jobs of one entry for which earlier runs have no duration."""

    __slots__ = ("cpus", "jobs", "memory", "seen", "seen_s", "written_s")

    def __init__(self) -> None:
        self.jobs = 0
        self.cpus = 0.0
        self.memory = 0.0
        self.seen = 0
        self.seen_s = 0.0
        self.written_s: float | None = None

    def expected(self) -> tuple[float | None, str]:
        if self.seen:
            return self.seen_s / self.seen, FROM_THIS_RUN
        return self.written_s, FROM_SPEC


class Estimator:
    """Estimator that is updated with each change of state and answers quickly however many jobs there are."""

    def __init__(self, plan: Plan, known_s: Mapping[str, float], capacity: Capacity) -> None:
        """`known_s`: durations in earlier runs, by name."""
        self._known_s = known_s
        self._jobs = list(plan.jobs)
        self._capacity = capacity
        self._known: list[float | None] = [known_s.get(job.name) for job in plan.jobs]
        self._entries: dict[int, _Entry] = {}
        self._states = [JobState.BLOCKED] * len(plan.jobs)
        self._running: dict[int, float] = {}
        self._waiting = 0  # jobs that could run now
        self._first_began_s: float | None = None
        self._ran_s = 0.0  # duration of all successful jobs
        self._dependents: list[tuple[int, ...]] | None = None  # computed at the first failure
        self._stuck: set[int] = set()  # jobs that wait for a failed one and will not run
        self._known_remaining = [0.0, 0.0, 0.0, 0]  # seconds, CPU seconds, byte seconds, jobs
        self._chains: list[float] = []
        self._by_chain: list[int] = []
        self._next_chain = 0
        self._chained_at_s: float | None = None
        self._chained_stuck = 0
        self._last: tuple[float, Estimate | None] = (0.0, None)
        for index in range(len(plan.jobs)):
            self._count(index, 1)

    def add_jobs(self, jobs: Sequence[PlannedJob]) -> None:
        """Adds the next jobs of the plan."""
        first = len(self._jobs)
        self._jobs += jobs
        self._known += [self._known_s.get(job.name) for job in jobs]
        self._states += [JobState.BLOCKED] * len(jobs)
        self._dependents = None
        if self._chains:
            self._chains += [0.0] * len(jobs)  # until the chains are computed again
        for index in range(first, len(self._jobs)):
            self._count(index, 1)

    def changed(self, index: int, state: JobState, now_s: float) -> None:
        before = self._states[index]
        self._states[index] = state
        self._waiting += (state in _WAITING) - (before in _WAITING)
        if state is JobState.RUNNING:
            self._running[index] = now_s
            if self._first_began_s is None:
                self._first_began_s = now_s
        else:
            self._running.pop(index, None)
        if state.is_final != before.is_final and index not in self._stuck:
            self._count(index, -1 if state.is_final else 1)
            if not state.is_final:
                self._chained_at_s = None
        if state in _FAILURES:
            self._exclude_dependents(index)

    def _exclude_dependents(self, index: int) -> None:
        if self._dependents is None:
            self._dependents = dependents_of([job.depends_on for job in self._jobs])
        reached = [index]
        while reached:
            for other in self._dependents[reached.pop()]:
                runs_anyway = self._jobs[other].when_blocked_fails is WhenBlockedFails.RUN
                if other not in self._stuck and not self._states[other].is_final and not runs_anyway:
                    self._stuck.add(other)
                    self._count(other, -1)
                    reached.append(other)

    def succeeded(self, index: int, duration_s: float) -> None:
        entry = self._entry(self._jobs[index])
        self._ran_s += duration_s
        entry.seen += 1
        entry.seen_s += duration_s

    def expected_s(self, index: int) -> float | None:
        known = self._known[index]
        return known if known is not None else self._entry(self._jobs[index]).expected()[0]

    def estimate(self, now_s: float) -> Estimate:
        at_s, last = self._last
        passed_s = now_s - at_s
        if last is None or passed_s * _ENTRIES_A_SECOND >= len(self._entries):
            last = self._estimate(now_s)
            self._last = (now_s, last)
            return last
        return last if last.left_s is None else replace(last, left_s=max(0.0, last.left_s - passed_s))

    def _estimate(self, now_s: float) -> Estimate:
        seconds, cpu_s, byte_s, jobs = self._known_remaining
        sources = {FROM_HISTORY} if jobs else set()
        unknown = 0
        for entry in self._entries.values():
            if not entry.jobs:
                continue
            expected, source = entry.expected()
            if expected is None:
                unknown += entry.jobs
                continue
            sources.add(source)
            seconds += entry.jobs * expected
            cpu_s += entry.cpus * expected
            byte_s += entry.memory * expected
        if unknown and not sources:
            return Estimate(unknown=unknown)
        done = self._done_by_running(now_s)
        there = self._capacity
        most_jobs = self._most_jobs(now_s, done[0])
        left = [
            (seconds - done[0]) / most_jobs if most_jobs else 0.0,
            (cpu_s - done[1]) / there.cpus if there.cpus else 0.0,
            (byte_s - done[2]) / there.memory_bytes if there.memory_bytes else 0.0,
            self._longest_chain(now_s),
        ]
        order = (FROM_HISTORY, FROM_THIS_RUN, FROM_SPEC)
        return Estimate(max(0.0, *left), tuple(source for source in order if source in sources), unknown)

    def _most_jobs(self, now_s: float, running_s: float) -> float | None:
        """Returns how many jobs run at once. `running_s`: how long running jobs have run. If others decide,
        it is the number that runs now, but at most the largest so far, because ends are reported with a
        delay."""
        there = self._capacity
        if there.cpus is not None or not self._waiting or not self._running:
            return there.most_jobs
        at_once = float(min(len(self._running), there.most_jobs or len(self._running)))
        passed_s = now_s - self._first_began_s if self._first_began_s is not None else 0.0
        if not self._ran_s or passed_s <= 0:
            return at_once
        return min(at_once, max(1.0, (self._ran_s + running_s) / passed_s))

    def _done_by_running(self, now_s: float) -> tuple[float, float, float]:
        seconds = cpu_s = byte_s = 0.0
        for index, began_s in self._running.items():
            spent = min(now_s - began_s, self.expected_s(index) or 0.0)
            seconds += spent
            cpu_s += spent * _cpus(self._jobs[index])
            byte_s += spent * _memory(self._jobs[index])
        return seconds, cpu_s, byte_s

    def _count(self, index: int, change: int) -> None:
        job = self._jobs[index]
        known = self._known[index]
        if known is not None:
            parts = (known, known * _cpus(job), known * _memory(job), 1)
            self._known_remaining = [
                left + change * part for left, part in zip(self._known_remaining, parts, strict=True)
            ]
            return
        entry = self._entry(job)
        entry.jobs += change
        entry.cpus += change * _cpus(job)
        entry.memory += change * _memory(job)

    def _entry(self, job: PlannedJob) -> _Entry:
        entry = self._entries.get(job.spec_job)
        if entry is None:
            entry = self._entries[job.spec_job] = _Entry()
            entry.written_s = job.requirements.timeout_s
        return entry

    def _longest_chain(self, now_s: float) -> float:
        """Returns the longest chain that begins with an unfinished job."""
        is_shorter = len(self._stuck) != self._chained_stuck  # a failure removes whole chains
        again_s = max(0.0 if is_shorter else _CHAIN_AGAIN_S, len(self._jobs) / _JOBS_A_SECOND)
        if self._chained_at_s is None or now_s - self._chained_at_s >= again_s:
            expected = [
                0.0 if index in self._stuck else self.expected_s(index) for index in range(len(self._jobs))
            ]
            self._chains = chains(self._jobs, expected)
            self._chained_stuck = len(self._stuck)
            self._by_chain = sorted(range(len(self._jobs)), key=self._chains.__getitem__, reverse=True)
            self._next_chain = 0
            self._chained_at_s = now_s
        longest = 0.0
        while self._next_chain < len(self._by_chain):
            index = self._by_chain[self._next_chain]
            is_to_come = not self._states[index].is_final and index not in self._stuck
            if is_to_come and index not in self._running:
                longest = self._chains[index]
                break
            self._next_chain += 1
        running = (
            self._chains[index] - min(now_s - began_s, self.expected_s(index) or 0.0)
            for index, began_s in self._running.items()
        )
        return max(longest, *running, 0.0) if self._running else longest


def chains(jobs: Sequence[PlannedJob], expected: Sequence[float | None]) -> list[float]:
    """Returns for each job the time from its start to the end of the longest chain that waits for it."""
    left = [0] * len(jobs)  # dependents whose chain is unknown
    for job in jobs:
        for other in job.depends_on:
            left[other] += 1
    longest = [0.0] * len(jobs)
    ready = [index for index, count in enumerate(left) if not count]
    while ready:
        index = ready.pop()
        longest[index] += expected[index] or 0.0
        for other in jobs[index].depends_on:
            longest[other] = max(longest[other], longest[index])
            left[other] -= 1
            if not left[other]:
                ready.append(other)
    return longest


def _cpus(job: PlannedJob) -> float:
    return job.requirements.cpus or 1.0


def _memory(job: PlannedJob) -> float:
    return job.requirements.memory_bytes or 0.0
