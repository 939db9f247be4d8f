"""How much memory a job gets at its first try, where one that needs more is tried again with the most seen.

Three strategies of the field, compared on jobs that were really observed:

- *max seen*: the first try gets the most any job used. Nothing is tried twice, small jobs waste the rest.
- *min waste*: the first try that makes the expected memory-time smallest, lost tries included.
- *max throughput*: the first try that lets a machine finish the most jobs an hour: more small jobs side by
  side, against the time lost with those that are tried twice.

Only sizes that would be written are compared: buffer and rounding can turn the order of two peaks round.
A try that fails is taken to fail at its very end, so what it costs is never told too low."""

import bisect
import enum
import itertools
from collections.abc import Sequence

from msgspec import Struct

from joblens.analysis.sizing.amounts import memory_for


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
