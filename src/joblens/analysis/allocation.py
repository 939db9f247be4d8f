"""How much memory a job gets at its first try, where one that needs more is tried again with the most seen.

Three strategies of the field, compared on jobs that were really observed:

- *max seen*: the first try gets the most any job used. Nothing is tried twice, small jobs waste the rest.
- *min waste*: the first try that makes the expected memory-time smallest, lost tries included.
- *max throughput*: the first try that lets a machine finish the most jobs an hour: more small jobs side by
  side, against the time lost with those that are tried twice.

A try that fails is taken to fail at its very end, so what it costs is never told too low."""

import enum
from collections.abc import Sequence

from msgspec import Struct

from joblens.analysis.amounts import memory_for


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


def compare(needs: Sequence[Need]) -> tuple[Allocation, ...]:
    """One for each strategy, with the sizes that would be written; () without observations."""
    if not needs:
        return ()
    most = max(need.memory_bytes for need in needs)
    ordered = sorted(needs, key=lambda need: need.memory_bytes)
    best = {Strategy.MAX_SEEN: most, **_best_firsts(ordered, most)}
    retry = memory_for(most)
    return tuple(evaluate(strategy, needs, memory_for(best[strategy]), retry) for strategy in Strategy)


def evaluate(strategy: Strategy, needs: Sequence[Need], first_bytes: int, retry_bytes: int) -> Allocation:
    """What a pair of sizes would have cost the jobs observed."""
    allocated = used = total_s = retried_s = 0.0
    retried = 0
    for need in needs:
        fits = need.memory_bytes <= first_bytes
        retried += not fits
        retried_s += 0.0 if fits else need.duration_s
        total_s += need.duration_s
        allocated += (first_bytes if fits else first_bytes + retry_bytes) * need.duration_s
        used += need.memory_bytes * need.duration_s
    share = retried / len(needs)
    side_by_side = (1 - share) * retry_bytes / first_bytes + share
    return Allocation(
        strategy=strategy,
        first_bytes=first_bytes,
        retry_bytes=retry_bytes,
        retries=share,
        waste_byte_s=(allocated - used) / len(needs),
        waste_percent=100 * (allocated - used) / allocated if allocated else 0.0,
        throughput=side_by_side * total_s / (total_s + retried_s) if total_s else side_by_side,
    )


def _best_firsts(ordered: Sequence[Need], most: int) -> dict[Strategy, int]:
    """Only sizes that were seen can be best: between two of them a larger one only wastes more."""
    count = len(ordered)
    mean_s = sum(need.duration_s for need in ordered) / count
    retried_s = sum(need.duration_s for need in ordered)  # of all jobs above the candidate
    least_area = best_rate = None
    best = {Strategy.MIN_WASTE: most, Strategy.MAX_THROUGHPUT: most}
    for place, need in enumerate(ordered):
        retried_s -= need.duration_s
        first = need.memory_bytes
        if first <= 0 or (place + 1 < count and ordered[place + 1].memory_bytes == first):
            continue
        area = first * mean_s + most * retried_s / count
        if least_area is None or area < least_area:
            least_area, best[Strategy.MIN_WASTE] = area, first
        fitting = (place + 1) / count
        rate = (fitting * most / first + 1 - fitting) / ((mean_s + retried_s / count) or 1.0)
        if best_rate is None or rate > best_rate:
            best_rate, best[Strategy.MAX_THROUGHPUT] = rate, first
    return best
