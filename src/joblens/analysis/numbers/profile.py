"""Profile of a job in the form of Keystone's `detailed_profile`: its parts, and their selection.

`cpu` and `memory` are the whole machine's, `process_cpu` and `process_memory` the job's. An unknown number is
null; `gpu_stats` and `container_stats` are empty if not measured.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from joblens.analysis.numbers.rates import (
    cpu_percent,
    elapsed_usec,
    growth,
    host_cpu_percent,
    peak_of,
    per_second,
    unreclaimable_bytes,
)
from joblens.model.errors import InputError
from joblens.model.jobs.details import Details, GpuFacts, ThreadUse
from joblens.model.jobs.job import Usage
from joblens.model.jobs.sample import Sample
from joblens.model.values.units import in_mb

if TYPE_CHECKING:
    from joblens.analysis.numbers.gpu import GpuDeviceTotals


_HOTTEST = 5
_NVIDIA_IDS = ("GPU-", "MIG-")
_UJ = 1_000_000


def mib(size: float | None) -> float | None:
    return None if size is None else round(in_mb(size) or 0.0, 4)


def rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def network_io(
    samples: Sequence[Sample], usage: Usage, most: Callable[[str], float | None]
) -> dict[str, float | int | None]:
    """Returns the traffic of the job's sockets, and of all interfaces of the machine. `most`: returns the
    highest rate of a counter."""
    received, sent = usage.network_rx_bytes, usage.network_tx_bytes
    return {
        "received_mb": mib(received),
        "sent_mb": mib(sent),
        "received_packets": usage.network_rx_packets,
        "sent_packets": usage.network_tx_packets,
        "total_mb": None if received is None or sent is None else mib(received + sent),
        "max_received_mb_per_second": mib(most("network_rx_bytes")),
        "max_sent_mb_per_second": mib(most("network_tx_bytes")),
        "host_received_mb": mib(_grown(samples, "host_network_rx_bytes")),
        "host_sent_mb": mib(_grown(samples, "host_network_tx_bytes")),
    }


def energy(usage: Usage, duration_s: float) -> dict[str, float | None]:
    """Returns the job's share of energy; sums exclude unknown parts."""
    parts = (usage.energy_package_uj, usage.energy_dram_uj, usage.gpu_energy_uj)
    known = [part for part in parts if part is not None]
    total_j = sum(known) / _UJ if known else None
    return {
        "cpu_joules": _joules(usage.energy_package_uj),
        "dram_joules": _joules(usage.energy_dram_uj),
        "gpu_joules": _joules(usage.gpu_energy_uj),
        "total_joules": rounded(total_j),
        "mean_watts": None if total_j is None or duration_s <= 0 else rounded(total_j / duration_s),
        "co2_grams": None if usage.co2_mg is None else usage.co2_mg / 1000,
    }


def threads(usage: Usage, details: Details | None) -> dict[str, Any]:
    table = None if details is None else details.threads
    return {
        "max_count": usage.threads_peak,
        "seen": None if table is None else table.seen,
        "run_queue_wait_seconds": None if table is None else _seconds(table.wait_usec),
        "migrations": None if table is None else table.migrations,
        "hottest": None if table is None else [_thread(one) for one in table.threads[:_HOTTEST]],
    }


def _thread(one: ThreadUse) -> dict[str, Any]:
    return {"name": one.name, "pid": one.pid, "tid": one.tid, "cpu_seconds": _seconds(one.cpu_usec)}


# ---- GPUs -----------------------------------------------------------------------------------------------


def gpu_stats(samples: Sequence[Sample], details: Details | None) -> dict[str, dict[str, Any]]:
    """Returns one entry per vendor of the GPUs that the job used; {}: none."""
    if not any(sample.gpus for sample in samples):
        return {}
    from joblens.analysis.numbers.gpu import (
        gpu_totals,  # imported only if needed: few machines have a GPU
    )

    facts = {one.id: one for one in (details.gpus if details is not None else None) or ()}
    totals = gpu_totals(samples).devices or {}
    by_vendor: dict[str, list[dict[str, Any]]] = {}
    for ident in sorted(totals, key=lambda one: (facts[one].index if one in facts else 0, one)):
        known = facts.get(ident)
        size = known.memory_total_bytes if known is not None else None
        device = _device(ident, totals[ident], size if size is not None else _size_seen(samples, ident))
        device["name"] = "" if known is None else known.name
        by_vendor.setdefault(_vendor(ident, known), []).append(device)
    return {vendor: _of_vendor(vendor, devices) for vendor, devices in sorted(by_vendor.items())}


def _vendor(ident: str, facts: GpuFacts | None) -> str:
    if facts is not None:
        return facts.vendor
    return "nvidia" if ident.startswith(_NVIDIA_IDS) else "other"


def _device(ident: str, total: "GpuDeviceTotals", memory_bytes: int | None) -> dict[str, Any]:
    """Returns averages over the time of use, and peaks of memory and temperature."""
    power_mw = total.power_mean_mw
    return {
        "id": ident,
        "name": "",
        "gpu_utilization_percent": _percent(total.utilization_mean),
        "memory_utilization_percent": _percent(total.memory_utilization_mean),
        "memory_used_mb": mib(total.memory_used_max_bytes),
        "memory_total_mb": mib(memory_bytes),
        "temperature_celsius": None if total.temperature_max_c is None else float(total.temperature_max_c),
        "power_watts": None if power_mw is None else power_mw / 1000,
        "energy_joules": _joules(total.energy_uj),
        "job_utilization_percent": _percent(total.job_utilization_mean),
        "job_memory_mb": mib(total.job_memory_peak_bytes),
        "job_energy_joules": _joules(total.job_energy_uj),
    }


def _size_seen(samples: Sequence[Sample], ident: str) -> int | None:
    """Derives the memory size from used and free memory."""
    for sample in reversed(samples):
        reading = (sample.gpus or {}).get(ident)
        if reading is not None and None not in (reading.memory_used_bytes, reading.memory_free_bytes):
            return (reading.memory_used_bytes or 0) + (reading.memory_free_bytes or 0)
    return None


def _of_vendor(vendor: str, devices: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Combines the devices of a vendor: mean load, total memory, highest temperature."""

    def known(name: str) -> list[float]:
        return [value for one in devices if (value := one[name]) is not None]

    def total(name: str) -> float | None:
        values = known(name)
        return round(sum(values), 4) if values else None

    numbers: dict[str, Any] = {
        "gpu_utilization_percent": _mean(known("gpu_utilization_percent")),
        "memory_utilization_percent": _mean(known("memory_utilization_percent")),
        "memory_used_mb": total("memory_used_mb"),
        "memory_total_mb": total("memory_total_mb"),
        "temperature_celsius": max(known("temperature_celsius"), default=None),
        "power_watts": total("power_watts"),
        "job_utilization_percent": _mean(known("job_utilization_percent")),
        "job_memory_mb": total("job_memory_mb"),
        "job_energy_joules": total("job_energy_joules"),
        "devices": list(devices),
    }
    if vendor == "intel":
        # If only the job's engine time is readable, it is the known load.
        load = numbers["gpu_utilization_percent"]
        busy = numbers["job_utilization_percent"] if load is None else load
        return {"render_busy_percent": busy, "available": True} | numbers
    return numbers


# ---- numbers --------------------------------------------------------------------------------------------


def _grown(samples: Sequence[Sample], counter: str) -> int | None:
    known = [sample for sample in samples if getattr(sample, counter) is not None]
    return growth(known[0], known[-1], counter) if len(known) > 1 else None


def _mean(values: Iterable[float]) -> float | None:
    known = list(values)
    return round(sum(known) / len(known), 3) if known else None


def _percent(hundredths: int | None) -> float | None:
    return None if hundredths is None else hundredths / 100


def _joules(uj: int | None) -> float | None:
    return None if uj is None else rounded(uj / _UJ)


def _seconds(usec: int | None) -> float | None:
    return None if usec is None else usec / 1_000_000


Rate = Callable[[Sample, Sample], float | None]
_SHORTEST_USEC = 40_000  # four ticks of the kernel's usual 100 Hz
_SHORTEST_S = 0.001  # below that, sampling itself is a part of the CPU time


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
    """Builds the profile. `count`: number of samples taken, if `samples` is a selection. `container_stats`:
    numbers of a container as text. `running`: samples while the job ran; default: without the first, before
    the program, and the last, after its end. `counted_s`: time over which counters were counted, if not
    all."""
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
        "gpu_stats": gpu_stats(samples, details),
        "container_stats": dict(container_stats or {}),
        "network_io": network_io(samples, usage, lambda counter: _most(samples, counter)),
        "energy": energy(usage, counted_s),
        "threads": threads(usage, details),
        "pressure": _pressure(samples, counted_s),
        "throttling": _throttling(samples, usage),
        "processes": {
            "max_count": usage.processes_peak,
            "max_threads": usage.threads_peak,
            "max_open_files": usage.open_files_peak,
        },
    }


def real_spacing_s(samples: Sequence[Sample], count: int | None = None) -> float | None:
    """Returns the actual sampling interval, without the last sample, which is taken at the end of the job;
    None if there are too few samples."""
    taken = len(samples) if count is None else count
    if len(samples) < 3 or taken < 3:
        return None
    return (samples[-2].elapsed_us - samples[0].elapsed_us) / (taken - 2) / 1_000_000


def rates_over(samples: Sequence[Sample], rate: Rate) -> list[float]:
    """Returns the known rates between samples. Over a very short time the kernel's tick would cause a spike:
    close samples are merged with the next, and the last one, at the end of the job, is omitted if too
    close."""
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
        # The mean is from exact totals, so it may exceed every rate between coarse samples.
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
    """Returns the share of the job's time in which some, or all, of its tasks waited."""
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


# Metric -> the parts of a profile that it fills.
METRICS: dict[str, tuple[str, ...]] = {
    "cpu": ("cpu", "process_cpu", "throttling"),
    "memory": ("memory", "process_memory"),
    "io": ("io_stats",),
    "network": ("network_io",),
    "gpu": ("gpu_stats",),
    "energy": ("energy",),
    "threads": ("threads",),
    "processes": ("processes",),
    "pressure": ("pressure",),
    "container": ("container_stats",),
}


def chosen_metrics(requested: str | Iterable[str] | None) -> tuple[str, ...]:
    """Returns metrics in the order of METRICS; None: all. Text is comma-separated. Raises InputError."""
    if requested is None:
        return tuple(METRICS)
    if not isinstance(requested, Iterable):
        raise InputError(f"metrics={requested!r}: expected names", hint=f"of {', '.join(METRICS)}")
    words = requested.split(",") if isinstance(requested, str) else list(requested)
    names = {str(word).strip() for word in words}
    unknown = sorted(names - METRICS.keys())
    if unknown or not names:
        message = f"unknown metric {', '.join(map(repr, unknown))}" if unknown else "no metric given"
        raise InputError(message, hint=f"use one or more of {', '.join(METRICS)}")
    return tuple(name for name in METRICS if name in names)


def without_others(profile: Mapping[str, Any], metrics: Iterable[str]) -> dict[str, Any]:
    """Empties the parts of other metrics; their keys are kept."""
    selected = {part for metric in metrics for part in METRICS[metric]}
    omitted = {part for parts in METRICS.values() for part in parts} - selected
    return {key: {} if key in omitted else value for key, value in profile.items()}
