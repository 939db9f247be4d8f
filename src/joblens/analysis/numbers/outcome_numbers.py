"""What an outcome tells of CPU and memory, defined once for every table, report and advice."""

from collections.abc import Iterable

from joblens.model.jobs.job import Outcome, Record

THROTTLED_SHARE = 0.05  # of its time, from which a job is taken to have wanted more CPUs
LEAST_THROTTLED_S = 0.5


def peak_cpu_percent(outcome: Outcome) -> float | None:
    """The highest rate between two samples; the exact average where that is higher or all there is."""
    measured = ((outcome.profile or {}).get("process_cpu") or {}).get("max_percent")
    rates = (float(measured),) if isinstance(measured, (int, float)) else ()
    return peak_of(rates, mean_cpu_percent(outcome))


def peak_of(rates: Iterable[float], mean: float | None) -> float | None:
    """Never below the average: what a job did before its first sample and after its last is in no rate."""
    return max([*rates, *(() if mean is None else (mean,))], default=None)


def node_count(record: Record) -> int:
    """Of a job that a cluster gave several to: its CPU time is that of all, what it asked for is for each."""
    placement = None if record.attempt is None else record.attempt.placement
    if placement is None or placement.is_allocation or (record.job.requirements.nodes or 1) == 1:
        return 1
    return max(1, len(placement.nodes))


def mean_cpu_percent(outcome: Outcome) -> float | None:
    total_usec = outcome.usage.cpu_total_usec
    if total_usec is None or outcome.duration_s <= 0:
        return None
    return total_usec / outcome.duration_s / 10_000


def is_throttled(outcome: Outcome) -> bool:
    """Held back by its CPU limit for long enough to matter."""
    held_back_s = (outcome.usage.cpu_throttled_usec or 0) / 1_000_000
    return held_back_s >= max(LEAST_THROTTLED_S, THROTTLED_SHARE * outcome.duration_s)


def is_out_of_memory(outcome: Outcome) -> bool:
    """Also of a job that went on, and even succeeded, after one of its processes was killed for memory."""
    return outcome.reason == "out-of-memory" or bool(outcome.usage.oom_kills)
