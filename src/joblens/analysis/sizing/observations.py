"""Observations of single attempts: the resources a job needs, its first memory allocation, and options to
ask for next time.

One that came to its end tells it exactly; one that was killed at a limit only that it is more than that; one
that failed for another reason, or was cancelled, what it is at least.

Three strategies of the field, compared on jobs that were really observed:

- *max seen*: the first try gets the most any job used. Nothing is tried twice, small jobs waste the rest.
- *min waste*: the first try that makes the expected memory-time smallest, lost tries included.
- *max throughput*: the first try that lets a machine finish the most jobs an hour: more small jobs side by
  side, against the time lost with those that are tried twice.

Only sizes that would be written are compared: buffer and rounding can turn the order of two peaks round.
A try that fails is taken to fail at its very end, so what it costs is never told too low.
"""

import bisect
import enum
import itertools
from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from joblens.analysis.numbers.rates import (
    is_out_of_memory,
    is_throttled,
    node_count,
    peak_cpu_percent,
)
from joblens.analysis.numbers.statistics import nearest_rank
from joblens.analysis.sizing.amounts import (
    LEAST_MEMORY_BUFFER,
    cpus_for,
    memory_for,
    memory_text,
    rounded_memory,
    rounded_runtime,
    runtime_for,
)
from joblens.model.jobs.job import Record, Requirements, Status


class Strategy(enum.StrEnum):
    MAX_SEEN = "max-seen"
    MIN_WASTE = "min-waste"
    MAX_THROUGHPUT = "max-throughput"


class Need(Struct, frozen=True):
    """What one job really used, and for how long."""

    memory_bytes: int
    duration_s: float


class Allocation(Struct, frozen=True, kw_only=True):
    """`first_bytes` for the first try, `retry_bytes` for the second."""

    strategy: Strategy
    first_bytes: int
    retry_bytes: int
    retries: float  # expected, per job: the share of jobs that are tried twice
    waste_byte_s: float  # allocated and not used, per job, lost tries included
    waste_percent: float  # of what is allocated
    throughput: float  # jobs a machine would finish in the same time, against max seen (1.0)


def compare(needs: Sequence[Need], largest_bytes: int | None = None) -> tuple[Allocation, ...]:
    """One for each strategy, with the sizes that would be written; () without observations.
    `largest_bytes`: what max seen would write, where something else than the jobs decides that too."""
    if not needs:
        return ()
    jobs = _Jobs(needs)
    retry = memory_for(jobs.most_bytes) if largest_bytes is None else max(largest_bytes, jobs.most_bytes)
    # The largest first: of two that are equally good the one with fewer retries is taken.
    sizes = sorted({min(retry, memory_for(size)) for size in jobs.sizes} | {retry}, reverse=True)
    tried = [jobs.evaluate(Strategy.MIN_WASTE, size, retry) for size in sizes]
    best = {
        Strategy.MAX_SEEN: retry,
        Strategy.MIN_WASTE: min(tried, key=lambda one: one.waste_byte_s).first_bytes,
        Strategy.MAX_THROUGHPUT: max(tried, key=lambda one: one.throughput).first_bytes,
    }
    return tuple(jobs.evaluate(strategy, best[strategy], retry) for strategy in Strategy)


def evaluate(strategy: Strategy, needs: Sequence[Need], first_bytes: int, retry_bytes: int) -> Allocation:
    """What a pair of sizes would have cost the jobs observed."""
    return _Jobs(needs).evaluate(strategy, first_bytes, retry_bytes)


class _Jobs:
    """Jobs by size, summed up once, so that any number of sizes can be tried on any number of jobs."""

    def __init__(self, needs: Sequence[Need]) -> None:
        ordered = sorted(needs, key=lambda need: need.memory_bytes)
        self.sizes = [need.memory_bytes for need in ordered]
        self.most_bytes = self.sizes[-1]
        self._used = sum(need.memory_bytes * need.duration_s for need in ordered)
        self._took_s = [0.0, *itertools.accumulate(need.duration_s for need in ordered)]

    def evaluate(self, strategy: Strategy, first_bytes: int, retry_bytes: int) -> Allocation:
        count, total_s = len(self.sizes), self._took_s[-1]
        fitting = bisect.bisect_right(self.sizes, first_bytes)
        retried_s = total_s - self._took_s[fitting] if fitting < count else 0.0
        allocated = first_bytes * total_s + retry_bytes * retried_s
        share = (count - fitting) / count
        side_by_side = (1 - share) * retry_bytes / first_bytes + share
        return Allocation(
            strategy=strategy,
            first_bytes=first_bytes,
            retry_bytes=retry_bytes,
            retries=share,
            waste_byte_s=(allocated - self._used) / count,
            waste_percent=100 * (allocated - self._used) / allocated if allocated else 0.0,
            throughput=side_by_side * total_s / (total_s + retried_s) if total_s else side_by_side,
        )


OOM_GROWTH = 1.5
TIMEOUT_GROWTH = 1.4
SAMPLED_ACCOUNTING = "sacct"
_OWN_ACCOUNTING = ("cgroup", "process-tree", "in-process")
_SEEN_ENOUGH_S = 60.0  # Slurm looks every 30 s, unless it is told otherwise
_QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "max": 1.0}


class Observation(Struct, frozen=True, kw_only=True):
    """One attempt of one job of one run."""

    job: str
    run: int
    attempt: int
    status: Status
    duration_s: float
    memory_bytes: int | None = None
    memory_is_least: bool = False  # may have been more
    memory_has_files: bool = False  # measured by an older joblens: mapped files may be in it
    peak_cores: float | None = None
    limits: Requirements = Requirements()  # that it had
    is_out_of_memory: bool = False
    is_throttled: bool = False
    is_sampled: bool = (
        False  # by Slurm, now and then: memory may have been more, of CPUs only the average is known
    )

    @property
    def is_complete(self) -> bool:
        return self.status is Status.SUCCESS

    @property
    def has_all_memory(self) -> bool:
        """A job can succeed though one of its processes was killed for memory: then it wanted more."""
        return self.is_complete and not self.is_out_of_memory

    @property
    def is_timed_out(self) -> bool:
        return self.status is Status.TIMEOUT

    @property
    def when(self) -> tuple[int, int]:
        """Attempts of one job, in their order."""
        return self.run, self.attempt


class Spread(Struct, frozen=True):
    """How an amount was spread over the jobs: p50, p90, p95, max. Those in `at_least` may be more, because
    jobs that were killed are among them or below."""

    quantiles: dict[str, float] = {}
    at_least: tuple[str, ...] = ()


def observation_of(record: Record, run: int, *, is_unmade: bool = False) -> Observation | None:
    """None: it has not ended, or nothing of it was measured. `is_unmade`: it did not make its output files,
    so it did not come to its end, whatever it said itself."""
    outcome = record.outcome
    if outcome is None or outcome.status in (Status.ERROR, Status.LOST):
        return None
    peak = peak_cpu_percent(outcome)
    is_sampled = record.attempt is not None and record.attempt.accounting == SAMPLED_ACCOUNTING
    # Seen often enough, a sampled peak is one to add more to, instead of none to go by.
    is_seen_enough = is_sampled and outcome.duration_s >= _SEEN_ENOUGH_S
    return Observation(
        job=record.job.name,
        run=run,
        attempt=1 if record.job.run is None else record.job.run.attempt,
        status=Status.FAILED if is_unmade else outcome.status,
        duration_s=outcome.duration_s,
        memory_bytes=outcome.usage.memory_peak_bytes,
        memory_is_least="memory_peak_bytes" in outcome.usage.lower_bounds and not is_seen_enough,
        memory_has_files=has_mapped_files(record),
        peak_cores=None if peak is None else peak / 100 / node_count(record),
        limits=record.job.requirements if record.job.enforce else Requirements(),
        is_out_of_memory=is_out_of_memory(outcome),
        is_throttled=is_throttled(outcome),
        is_sampled=is_sampled,
    )


def has_mapped_files(record: Record) -> bool:
    """Its peak is of an older joblens, which took the high-water mark of a process."""
    if record.outcome is None or record.attempt is None or record.outcome.usage.memory_peak_bytes is None:
        return False
    return not record.outcome.usage.memory_peak_basis and record.attempt.accounting.startswith(
        _OWN_ACCOUNTING
    )


def without_mapped_files(seen: Sequence[Observation]) -> tuple[Observation, ...]:
    """Peaks with mapped files count only for jobs of which there is no other."""
    known = {item.job for item in seen if item.memory_bytes is not None and not item.memory_has_files}
    return tuple(
        replace(item, memory_bytes=None, memory_is_least=False, memory_has_files=False)
        if item.memory_has_files and item.job in known
        else item
        for item in seen
    )


def memory_limits_hit(seen: Sequence[Observation]) -> list[int]:
    """Of attempts whose jobs' real need is not known since. That one is known once the job comes through
    afterwards with more; or came through before, with more than what was not enough now."""
    through = _by_job(item for item in seen if item.has_all_memory)
    return [
        limit
        for item in seen
        if item.is_out_of_memory and (limit := item.limits.memory_bytes) is not None
        if not any(
            (one.limits.memory_bytes is None or one.limits.memory_bytes > limit)
            and (one.when > item.when or (one.memory_bytes or 0) >= limit)
            for one in through.get(item.job, ())
        )
    ]


def time_limits_hit(seen: Sequence[Observation]) -> list[float]:
    """The same for time."""
    through = _by_job(item for item in seen if item.is_complete)
    return [
        limit
        for item in seen
        if item.is_timed_out and (limit := item.limits.timeout_s) is not None
        if not any(
            (one.limits.timeout_s is None or one.limits.timeout_s > limit)
            and (one.when > item.when or one.duration_s >= limit)
            for one in through.get(item.job, ())
        )
    ]


def _by_job(seen: Iterator[Observation]) -> dict[str, list[Observation]]:
    found: dict[str, list[Observation]] = {}
    for item in seen:
        found.setdefault(item.job, []).append(item)
    return found


def memory_needs(seen: Sequence[Observation]) -> list[Need]:
    """Of every job of every run, those that were killed for memory and never came through included: left
    out, only the small ones would be seen. What such a job used in another run counts where that is more
    than it was killed at, else what it would be given next."""
    needs = []
    through = _by_job(item for item in seen if item.has_all_memory and item.memory_bytes is not None)
    done = {(item.run, item.job) for items in through.values() for item in items}
    killed: dict[tuple[int, str], Observation] = {}
    for item in seen:
        if item.has_all_memory and item.memory_bytes is not None:
            needs.append(Need(item.memory_bytes, item.duration_s))
        elif item.is_out_of_memory and item.limits.memory_bytes and (item.run, item.job) not in done:
            before = killed.get((item.run, item.job))
            if before is None or (before.limits.memory_bytes or 0) < item.limits.memory_bytes:
                killed[item.run, item.job] = item
    for item in killed.values():
        limit = item.limits.memory_bytes or 0
        known = [one for one in through.get(item.job, ()) if (one.memory_bytes or 0) > limit]
        largest = max(known, key=lambda one: one.memory_bytes or 0, default=None)
        if largest is not None:
            needs.append(Need(largest.memory_bytes or 0, largest.duration_s))
        else:
            needs.append(Need(int(limit * OOM_GROWTH / LEAST_MEMORY_BUFFER), item.duration_s))
    return needs


def spread(complete: Sequence[float], killed_at: Sequence[float] = ()) -> Spread:
    """Of what completed jobs used. A limit at which a job was killed stands for 'more than that': it
    takes its place among the others, and from there on every number is at least what is shown."""
    ordered = sorted([*((value, False) for value in complete), *((limit, True) for limit in killed_at)])
    if not ordered:
        return Spread()
    places = {name: nearest_rank(share, len(ordered)) for name, share in _QUANTILES.items()}
    first_killed = next((place for place, (_, is_killed) in enumerate(ordered) if is_killed), len(ordered))
    return Spread(
        {name: ordered[place][0] for name, place in places.items()},
        tuple(name for name, place in places.items() if place >= first_killed),
    )


def memory_option(peak_bytes: float) -> str:
    """`--memory 640m`: the amount that right-sizing finds for a peak, too."""
    return f"--memory {memory_text(memory_for(peak_bytes))}"


def more_memory_option(limit_bytes: float, peak_bytes: float = 0) -> str:
    """Where it was not enough: how much it would have used is not known."""
    enough, more = memory_for(peak_bytes), limit_bytes * OOM_GROWTH
    return f"--memory {memory_text(rounded_memory(more) if more > enough else enough)}"


def more_time_option(limit_s: float, took_s: float) -> str:
    """`--timeout 1h30m`, where a time was up."""
    enough, more = runtime_for(took_s), limit_s * TIMEOUT_GROWTH
    seconds = rounded_runtime(more) if more > enough else enough
    hours, minutes, rest = seconds // 3600, seconds // 60 % 60, seconds % 60
    parts = ((hours, "h"), (minutes, "m"), (rest, "s"))
    return "--timeout " + "".join(f"{number}{unit}" for number, unit in parts if number)


def cpus_option(needed_cpus: float) -> str:
    return f"--cpus {cpus_for(needed_cpus)}"
