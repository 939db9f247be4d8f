"""Observations of single attempts:
the resources a job needs, its first memory allocation, and options for next time.

A completed attempt shows the need exactly; one killed at a limit shows that it is more; one that failed
otherwise, or was cancelled, shows a minimum.

Three strategies, compared on observed jobs:

- *max seen*: the first attempt gets the most any job used. No retries, but small jobs waste memory.
- *min waste*: the first attempt with the smallest expected memory-time, including failed attempts.
- *max throughput*: the first attempt with which a machine finishes the most jobs per hour: more small jobs in
parallel, against time lost to retries.

Only sizes that would be written are compared: buffer and rounding can change the order of two peaks. A failed
attempt is assumed to fail at its end, so its cost is never underestimated.
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
    """Memory and time that one job used."""

    memory_bytes: int
    duration_s: float


class Allocation(Struct, frozen=True, kw_only=True):
    """`first_bytes` for the first try, `retry_bytes` for the second."""

    strategy: Strategy
    first_bytes: int
    retry_bytes: int
    retries: float  # expected, per job: the share of jobs that are tried twice
    waste_byte_s: float  # allocated and not used, per job, lost tries included
    waste_percent: float  # of the allocated memory
    throughput: float  # relative throughput of a machine (max seen: 1.0)


def compare(needs: Sequence[Need], largest_bytes: int | None = None) -> tuple[Allocation, ...]:
    """Returns one result per strategy, with sizes to write; () without observations.

    `largest_bytes`: size of max seen, if more than the jobs decide it.
    """
    if not needs:
        return ()
    jobs = _Jobs(needs)
    retry = memory_for(jobs.most_bytes) if largest_bytes is None else max(largest_bytes, jobs.most_bytes)
    # The largest first: of two equally good ones, take the one with fewer retries.
    sizes = sorted({min(retry, memory_for(size)) for size in jobs.sizes} | {retry}, reverse=True)
    tried = [jobs.evaluate(Strategy.MIN_WASTE, size, retry) for size in sizes]
    best = {
        Strategy.MAX_SEEN: retry,
        Strategy.MIN_WASTE: min(tried, key=lambda one: one.waste_byte_s).first_bytes,
        Strategy.MAX_THROUGHPUT: max(tried, key=lambda one: one.throughput).first_bytes,
    }
    return tuple(jobs.evaluate(strategy, best[strategy], retry) for strategy in Strategy)


def evaluate(strategy: Strategy, needs: Sequence[Need], first_bytes: int, retry_bytes: int) -> Allocation:
    """Returns the cost of a pair of sizes for the observed jobs."""
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
_SEEN_ENOUGH_S = 60.0  # Slurm's default sampling interval is 30 s
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
        """Returns whether the peak is the job's need. A job may succeed although one of its processes was
        killed for memory: then it needs more."""
        return self.is_complete and not self.is_out_of_memory

    @property
    def is_timed_out(self) -> bool:
        return self.status is Status.TIMEOUT

    @property
    def when(self) -> tuple[int, int]:
        """Attempts of one job, in their order."""
        return self.run, self.attempt


class Spread(Struct, frozen=True):
    """Distribution over the jobs: p50, p90, p95, max.

    Those in `at_least` may be more, because killed jobs are among them or below.
    """

    quantiles: dict[str, float] = {}
    at_least: tuple[str, ...] = ()


def observation_of(record: Record, run: int, *, is_unmade: bool = False) -> Observation | None:
    """Returns None if it has not ended, or nothing was measured.

    `is_unmade`: its output files are missing, so it did not complete, whatever its exit code.
    """
    outcome = record.outcome
    if outcome is None or outcome.status in (Status.ERROR, Status.LOST):
        return None
    peak = peak_cpu_percent(outcome)
    is_sampled = record.attempt is not None and record.attempt.accounting == SAMPLED_ACCOUNTING
    # With enough samples, a sampled peak plus a margin is better than none.
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
    """Uses peaks with mapped files only for jobs without another."""
    known = {item.job for item in seen if item.memory_bytes is not None and not item.memory_has_files}
    return tuple(
        replace(item, memory_bytes=None, memory_is_least=False, memory_has_files=False)
        if item.memory_has_files and item.job in known
        else item
        for item in seen
    )


def memory_limits_hit(seen: Sequence[Observation]) -> list[int]:
    """Returns limits at which jobs were killed whose real need is still unknown.

    It is known once the job completes with more, before or after.
    """
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
    """Returns the same for time limits."""
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
    """Returns the needs of all jobs, including those killed for memory that never completed.

    Without them, only small jobs would count. Such a job counts with its use in another run if that is more
    than its limit, else with its next allocation.
    """
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
    """Returns the distribution over completed jobs. A limit at which a job was killed means 'more than that':
    it is ranked among the others, and from there on every number is a lower bound.
    """
    ordered = sorted([*((value, False) for value in complete), *((limit, True) for limit in killed_at)])
    if not ordered:
        return Spread()
    ranks = {name: nearest_rank(share, len(ordered)) for name, share in _QUANTILES.items()}
    first_killed = next((rank for rank, (_, is_killed) in enumerate(ordered) if is_killed), len(ordered))
    return Spread(
        {name: ordered[rank][0] for name, rank in ranks.items()},
        tuple(name for name, rank in ranks.items() if rank >= first_killed),
    )


def memory_option(peak_bytes: float) -> str:
    """Returns `--memory 640m`, the amount that right-sizing recommends for a peak."""
    return f"--memory {memory_text(memory_for(peak_bytes))}"


def more_memory_option(limit_bytes: float, peak_bytes: float = 0) -> str:
    """Returns the option with more memory after a job ran out of it; its real need is unknown."""
    enough, more = memory_for(peak_bytes), limit_bytes * OOM_GROWTH
    return f"--memory {memory_text(rounded_memory(more) if more > enough else enough)}"


def more_time_option(limit_s: float, took_s: float) -> str:
    """Returns `--timeout 1h30m` with more time after a timeout."""
    enough, more = runtime_for(took_s), limit_s * TIMEOUT_GROWTH
    seconds = rounded_runtime(more) if more > enough else enough
    hours, minutes, rest = seconds // 3600, seconds // 60 % 60, seconds % 60
    parts = ((hours, "h"), (minutes, "m"), (rest, "s"))
    return "--timeout " + "".join(f"{number}{unit}" for number, unit in parts if number)


def cpus_option(needed_cpus: float) -> str:
    return f"--cpus {cpus_for(needed_cpus)}"
