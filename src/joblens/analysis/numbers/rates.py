"""Rates and shares of samples and outcomes: CPU, memory, unreaped processes, and why a number is unknown.

Samples hold counters; every rate is a difference of two. None: a counter was not read, went backwards
(it is then not the same counter), or no time has passed. Time is the job's own monotonic `elapsed_us`: the
wall clock may jump.

The group counts them; the rusage and the I/O counters that the launcher takes over do not contain them. Where
every process is waited for, both agree to some microseconds per thread, and to the page fault.
"""

from collections.abc import Iterable

from joblens.model.jobs.job import ExitUsage, Outcome, Record
from joblens.model.jobs.sample import Sample


def elapsed_usec(earlier: Sample, later: Sample) -> int | None:
    usec = later.elapsed_us - earlier.elapsed_us
    return usec if usec > 0 else None


def growth(earlier: Sample, later: Sample, counter: str) -> int | None:
    """Returns the increase of a counter; None: unknown, or it fell."""
    before: int | None = getattr(earlier, counter)
    after: int | None = getattr(later, counter)
    if before is None or after is None or after < before:
        return None
    return after - before


def per_second(earlier: Sample, later: Sample, counter: str) -> float | None:
    grown = growth(earlier, later, counter)
    usec = elapsed_usec(earlier, later)
    return None if grown is None or usec is None else grown * 1_000_000 / usec


def cpu_percent(earlier: Sample, later: Sample) -> float | None:
    """Returns the mean CPU use: 100 is one core, busy all the time."""
    grown = growth(earlier, later, "cpu_total_usec")
    usec = elapsed_usec(earlier, later)
    return None if grown is None or usec is None else 100.0 * grown / usec


def throttle_percent(earlier: Sample, later: Sample) -> float | None:
    """Returns the share of the scheduler's periods in which the job was throttled by its CPU limit."""
    throttled = growth(earlier, later, "cpu_throttled_periods")
    periods = growth(earlier, later, "cpu_periods")
    if throttled is None or periods is None:
        return None
    return 100.0 * throttled / periods if periods else 0.0


def host_cpu_percent(earlier: Sample, later: Sample) -> float | None:
    """Returns the CPU use of the whole machine: 100 is all cores busy."""
    busy = growth(earlier, later, "host_cpu_busy_usec")
    total = growth(earlier, later, "host_cpu_total_usec")
    return None if busy is None or not total else min(100.0, 100.0 * busy / total)


def unreclaimable_bytes(sample: Sample) -> int | None:
    """Returns memory that the kernel cannot reclaim without swapping: anonymous, shared and kernel memory of
    the job, without caches of directories and files. If some of the three are unknown, the sum of the others:
    a lower bound."""
    known = [
        part
        for part in (sample.memory_anon_bytes, sample.memory_shmem_bytes, sample.memory_kernel_bytes)
        if part is not None
    ]
    if not known:
        return None
    cached = 0 if sample.memory_kernel_bytes is None else sample.memory_slab_reclaimable_bytes or 0
    return sum(known) - min(cached, sample.memory_kernel_bytes or 0)


def page_cache(sample: Sample) -> int | None:
    """Returns the page cache without shared memory, which the kernel counts in it but cannot reclaim."""
    if sample.memory_file_bytes is None:
        return None
    return max(0, sample.memory_file_bytes - (sample.memory_shmem_bytes or 0))


def file_pages(sample: Sample) -> int | None:
    """Returns all charged memory that the kernel can reclaim: page cache, and caches of directories and
    files."""
    pages = page_cache(sample)
    return None if pages is None else pages + (sample.memory_slab_reclaimable_bytes or 0)


THROTTLED_SHARE = 0.05  # share of its time from which a job is assumed to need more CPUs
LEAST_THROTTLED_S = 0.5


def peak_cpu_percent(outcome: Outcome) -> float | None:
    """Returns the highest rate between two samples; the exact average if that is higher, or without
    samples."""
    measured = ((outcome.profile or {}).get("process_cpu") or {}).get("max_percent")
    rates = (float(measured),) if isinstance(measured, (int, float)) else ()
    return peak_of(rates, mean_cpu_percent(outcome))


def peak_of(rates: Iterable[float], mean: float | None) -> float | None:
    """Returns a peak, at least the average: before the first and after the last sample there is no rate."""
    return max([*rates, *(() if mean is None else (mean,))], default=None)


def node_count(record: Record) -> int:
    """Returns the number of nodes of a cluster job: its CPU time is of all, its request is per node."""
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
    """Returns whether the job was throttled by its CPU limit for a significant time."""
    held_back_s = (outcome.usage.cpu_throttled_usec or 0) / 1_000_000
    return held_back_s >= max(LEAST_THROTTLED_S, THROTTLED_SHARE * outcome.duration_s)


def is_out_of_memory(outcome: Outcome) -> bool:
    """Returns whether a process was killed for memory, even if the job continued and succeeded."""
    return outcome.reason == "out-of-memory" or bool(outcome.usage.oom_kills)


def is_memory_measured(record: Record, outcome: Outcome) -> bool:
    """Returns whether joblens itself measured memory: then running out of it is known, not guessed."""
    accounting = record.attempt.accounting if record.attempt is not None else ""
    has_numbers = outcome.usage.oom_kills is not None or outcome.usage.memory_peak_bytes is not None
    return has_numbers and accounting not in ("", "sacct")


NOT_MEASURED = "not measured"  # unspecified: an import, a record of an older joblens
NO_GRID_FACTOR = "no grid factor is set (energy.grid_co2_g_per_kwh)"
ONLY_IMPORTED = "joblens does not add up resident sizes; imported files may"


# Numbers for which the launcher knows only reaped processes.
FROM_WAITED = (
    "io_read_bytes",
    "io_write_bytes",
    "io_call_read_bytes",
    "io_call_write_bytes",
    "io_call_reads",
    "io_call_writes",
    "context_switches_voluntary",
    "context_switches_involuntary",
)
_CPU_USEC = 200  # the last moments of a process count for its group only
_CPU_SHARE = 0.001
_FAULTS = 20  # fewer than any process has that was forked
_FAULT_SHARE = 0.005
# Without fault counters CPU time alone decides; a program of many short threads is not a reason.
_CPU_USEC_ALONE = 1_000
_CPU_SHARE_ALONE = 0.02


def has_unreaped_processes(last: Sample, waited: ExitUsage) -> bool:
    """Returns whether the cgroup of an ended job counted more than its launcher reaped. `last`: the final
    sample of a group, counters since the start."""
    cpu_waited = waited.user_usec + waited.system_usec
    cpu_extra = (last.cpu_total_usec or 0) - cpu_waited
    if last.faults_minor is None:
        return cpu_extra > _CPU_USEC_ALONE + cpu_waited * _CPU_SHARE_ALONE
    faults_extra = last.faults_minor - waited.faults_minor
    has_more_faults = faults_extra > _FAULTS + waited.faults_minor * _FAULT_SHARE
    return has_more_faults and cpu_extra > _CPU_USEC + cpu_waited * _CPU_SHARE
