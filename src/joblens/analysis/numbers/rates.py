"""Rates and shares between two samples of one job.

Samples hold counters; every rate is a difference of two. None: a counter was not read, went backwards
(it is then not the same counter), or no time has passed. Time is the job's own monotonic `elapsed_us`: the
wall clock may jump."""

from joblens.model.jobs.sample import Sample


def elapsed_usec(earlier: Sample, later: Sample) -> int | None:
    usec = later.elapsed_us - earlier.elapsed_us
    return usec if usec > 0 else None


def growth(earlier: Sample, later: Sample, counter: str) -> int | None:
    """How much a counter grew, or None."""
    before: int | None = getattr(earlier, counter)
    after: int | None = getattr(later, counter)
    if before is None or after is None or after < before:
        return None
    return after - before


def per_second(earlier: Sample, later: Sample, counter: str) -> float | None:
    grown = growth(earlier, later, counter)
    usec = elapsed_usec(earlier, later)
    return None if grown is None or usec is None else grown * 1_000_000 / usec


def time_percent(earlier: Sample, later: Sample, counter: str) -> float | None:
    """A counter of microseconds as share of the time that passed: 100 is all of it."""
    grown = growth(earlier, later, counter)
    usec = elapsed_usec(earlier, later)
    return None if grown is None or usec is None else 100.0 * grown / usec


def cpu_percent(earlier: Sample, later: Sample) -> float | None:
    """100 is one core, busy all the time."""
    return time_percent(earlier, later, "cpu_total_usec")


def throttle_percent(earlier: Sample, later: Sample) -> float | None:
    """Share of the scheduler's periods in which the job ran into its CPU limit."""
    throttled = growth(earlier, later, "cpu_throttled_periods")
    periods = growth(earlier, later, "cpu_periods")
    if throttled is None or periods is None:
        return None
    return 100.0 * throttled / periods if periods else 0.0


def host_cpu_percent(earlier: Sample, later: Sample) -> float | None:
    """The whole machine; 100 is all cores busy."""
    busy = growth(earlier, later, "host_cpu_busy_usec")
    total = growth(earlier, later, "host_cpu_total_usec")
    return None if busy is None or not total else min(100.0, 100.0 * busy / total)


def unreclaimable_bytes(sample: Sample) -> int | None:
    """Memory that the kernel cannot take back without swapping: anonymous, shared and its own for the job,
    without its caches of directories and files.

    Where only some of the three can be read, their sum: less than the truth, never more."""
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
    """Pages of files. The kernel counts shared memory among them, which it cannot take back."""
    if sample.memory_file_bytes is None:
        return None
    return max(0, sample.memory_file_bytes - (sample.memory_shmem_bytes or 0))


def file_pages(sample: Sample) -> int | None:
    """Everything charged that the kernel can take back: page cache, and caches of directories and files."""
    pages = page_cache(sample)
    return None if pages is None else pages + (sample.memory_slab_reclaimable_bytes or 0)
