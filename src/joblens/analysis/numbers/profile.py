"""What the samples of one job add up to, in the form of Keystone's `detailed_profile`.

`cpu` and `memory` are the whole machine's, `process_cpu` and `process_memory` the job's. A number that cannot
be known is null; `gpu_stats` and `container_stats` are empty where nothing of the kind was measured."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from joblens.analysis.numbers import profile_parts as parts
from joblens.analysis.numbers.outcome_numbers import peak_of
from joblens.analysis.numbers.profile_parts import mib, rounded
from joblens.analysis.numbers.rates import (
    cpu_percent,
    elapsed_usec,
    growth,
    host_cpu_percent,
    per_second,
    unreclaimable_bytes,
)
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import Usage
from joblens.model.jobs.sample import Sample

Rate = Callable[[Sample, Sample], float | None]
_SHORTEST_USEC = 40_000  # four ticks of the kernel's usual 100 Hz
_SHORTEST_S = 0.001  # below that, what looking itself took is a part of the CPU time


def detailed_profile(
    samples: Sequence[Sample],
    usage: Usage,
    duration_s: float,
    *,
    count: int | None = None,
    details: Details | None = None,
    container_stats: Mapping[str, str] | None = None,
    running: Sequence[Sample] | None = None,
    counted_s: float | None = None,
) -> dict[str, Any]:
    """`count` is how many samples were taken when `samples` is a selection of them. `container_stats` are
    the strings of a container's numbers, where one was measured. `running` are the samples taken while it
    ran: by default without the first, before a job's program is loaded, and the last, when all is gone.
    `counted_s` is the time over which its counters were counted, where that was not the whole."""
    counted_s = duration_s if counted_s is None else counted_s
    running = samples[1:-1] if running is None else running
    return {
        "duration_seconds": round(duration_s, 6),
        "samples_collected": len(samples) if count is None else count,
        "sampling_interval_seconds": rounded(real_spacing_s(samples, count)),
        "cpu": _host_cpu(samples),
        "memory": _host_memory(samples),
        "process_cpu": _process_cpu(samples, usage, counted_s),
        "process_memory": _process_memory(samples, running, usage),
        "io_stats": _io_stats(samples, usage),
        "gpu_stats": parts.gpu_stats(samples, details),
        "container_stats": dict(container_stats or {}),
        "network_io": parts.network_io(samples, usage, lambda counter: _most(samples, counter)),
        "energy": parts.energy(usage, counted_s),
        "threads": parts.threads(usage, details),
        "pressure": _pressure(samples, counted_s),
        "throttling": _throttling(samples, usage),
        "processes": {
            "max_count": usage.processes_peak,
            "max_threads": usage.threads_peak,
            "max_open_files": usage.open_files_peak,
        },
    }


def real_spacing_s(samples: Sequence[Sample], count: int | None = None) -> float | None:
    """Time between samples as it really was. The last one comes when the job ends, not when one is due,
    so it does not count; None when there are too few to tell."""
    taken = len(samples) if count is None else count
    if len(samples) < 3 or taken < 3:
        return None
    return (samples[-2].elapsed_us - samples[0].elapsed_us) / (taken - 2) / 1_000_000


def rates_over(samples: Sequence[Sample], rate: Rate) -> list[float]:
    """The rate between each two samples where it is known.

    Over a moment the kernel's tick would make a spike: samples closer than that are joined to the next,
    and the last one, which comes when the job ends, is left out when it follows too soon."""
    rates = []
    before = None
    for sample in _without_hasty_end(samples):
        if before is not None:
            if (elapsed_usec(before, sample) or 0) < _SHORTEST_USEC:
                continue
            value = rate(before, sample)
            if value is not None:
                rates.append(value)
        before = sample
    return rates


def _without_hasty_end(samples: Sequence[Sample]) -> Sequence[Sample]:
    if len(samples) < 3:
        return samples
    usual_usec = elapsed_usec(samples[-3], samples[-2]) or 0
    last_usec = elapsed_usec(samples[-2], samples[-1]) or 0
    return samples[:-1] if 2 * last_usec < usual_usec else samples


def _host_cpu(samples: Sequence[Sample]) -> dict[str, float | None]:
    rates = rates_over(samples, host_cpu_percent)
    overall = host_cpu_percent(samples[0], samples[-1]) if samples else None
    return {
        "mean_percent": rounded(overall),
        "max_percent": rounded(max(rates, default=overall)),
        "min_percent": rounded(min(rates, default=overall)),
    }


def _host_memory(samples: Sequence[Sample]) -> dict[str, float | None]:
    used = [sample.host_memory_used_bytes for sample in samples if sample.host_memory_used_bytes is not None]
    if not used:
        return {"mean_used_mb": None, "max_used_mb": None, "min_used_mb": None}
    return {
        "mean_used_mb": mib(sum(used) / len(used)),
        "max_used_mb": mib(max(used)),
        "min_used_mb": mib(min(used)),
    }


def _process_cpu(samples: Sequence[Sample], usage: Usage, counted_s: float) -> dict[str, float | None]:
    mean = None
    if usage.cpu_total_usec is not None and counted_s >= _SHORTEST_S:
        mean = usage.cpu_total_usec / counted_s / 10_000
    rates = rates_over(samples, cpu_percent)
    return {
        "mean_percent": rounded(mean),
        # The mean is from exact totals, so it may lie above every rate between coarse samples.
        "max_percent": rounded(peak_of(rates, mean)),
        "min_percent": rounded(min([*rates, mean]) if mean is not None else min(rates, default=None)),
    }


def _process_memory(
    samples: Sequence[Sample], running: Sequence[Sample], usage: Usage
) -> dict[str, float | None]:
    sizes = [size for sample in running if (size := unreclaimable_bytes(sample)) is not None]
    virtual = [sample.memory_virtual_bytes for sample in samples if sample.memory_virtual_bytes is not None]
    return {
        "mean_mb": mib(usage.memory_mean_bytes),
        "max_mb": mib(usage.memory_peak_bytes),
        "min_mb": mib(min(sizes, default=usage.memory_mean_bytes)),
        "max_with_cache_mb": mib(usage.memory_kernel_peak_bytes),
        "max_file_mb": mib(usage.memory_file_peak_bytes),
        "max_process_mb": mib(usage.memory_largest_process_bytes),
        "max_virtual_mb": mib(max(virtual, default=None)),
    }


def _io_stats(samples: Sequence[Sample], usage: Usage) -> dict[str, float | int | None]:
    read, written = usage.io_read_bytes, usage.io_write_bytes
    return {
        "read_mb": mib(read),
        "write_mb": mib(written),
        # Only a group counts operations on devices; a host program has its read and write calls.
        "read_count": usage.io_call_reads if usage.io_read_ops is None else usage.io_read_ops,
        "write_count": usage.io_call_writes if usage.io_write_ops is None else usage.io_write_ops,
        "total_io_mb": None if read is None or written is None else mib(read + written),
        "call_read_mb": mib(usage.io_call_read_bytes),
        "call_write_mb": mib(usage.io_call_write_bytes),
        "call_read_count": usage.io_call_reads,
        "call_write_count": usage.io_call_writes,
        "max_read_mb_per_second": mib(_most(samples, "io_read_bytes")),
        "max_write_mb_per_second": mib(_most(samples, "io_write_bytes")),
    }


def _most(samples: Sequence[Sample], counter: str) -> float | None:
    return max(
        rates_over(samples, lambda before, after: per_second(before, after, counter)),
        default=None,
    )


def _pressure(samples: Sequence[Sample], counted_s: float) -> dict[str, dict[str, float | None]]:
    """Share of the job's time that some, or all, of its tasks stood waiting."""
    return {
        resource: {
            f"{kind}_percent": _share(samples, f"{resource}_{kind}_usec", counted_s)
            for kind in ("some", "full")
        }
        for resource in ("cpu", "memory", "io")
    }


def _throttling(samples: Sequence[Sample], usage: Usage) -> dict[str, float | int | None]:
    known = [sample for sample in samples if sample.cpu_periods is not None]
    periods = growth(known[0], known[-1], "cpu_periods") if known else None
    throttled = growth(known[0], known[-1], "cpu_throttled_periods") if known else None
    throttled_usec = usage.cpu_throttled_usec
    return {
        "throttled_seconds": None if throttled_usec is None else throttled_usec / 1_000_000,
        "throttled_percent": rounded(100 * throttled / periods)
        if periods and throttled is not None
        else None,
    }


def _share(samples: Sequence[Sample], counter: str, counted_s: float) -> float | None:
    # Counters are since the start, so the last one over the whole time is the share.
    waited: int | None = getattr(samples[-1], counter) if samples else None
    return None if waited is None or counted_s <= 0 else rounded(waited / counted_s / 10_000)
