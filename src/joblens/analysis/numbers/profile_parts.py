"""Parts of a profile beyond CPU, memory and I/O: network, energy, threads, GPUs."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from joblens.analysis.numbers.rates import growth
from joblens.model.jobs.details import Details, GpuFacts, ThreadUse
from joblens.model.jobs.job import Usage
from joblens.model.jobs.sample import Sample
from joblens.model.values.units import in_mb

if TYPE_CHECKING:
    from joblens.analysis.numbers.gpu_totals import GpuDeviceTotals

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
    """The job's own sockets, then all interfaces of the machine. `most` gives a counter's highest rate."""
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
    """The job's share. What the machine cannot tell is in no sum."""
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
    """One entry a maker of the GPUs that the job used; {}: none."""
    if not any(sample.gpus for sample in samples):
        return {}
    from joblens.analysis.numbers.gpu_totals import (
        gpu_totals,  # few machines have one, and every job pays for imports
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
    """Averages over the time in which the job used it, peaks of memory and temperature."""
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
    """Where nobody told what the device is: used and free make the whole."""
    for sample in reversed(samples):
        reading = (sample.gpus or {}).get(ident)
        if reading is not None and None not in (reading.memory_used_bytes, reading.memory_free_bytes):
            return (reading.memory_used_bytes or 0) + (reading.memory_free_bytes or 0)
    return None


def _of_vendor(vendor: str, devices: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """All its devices together: mean load, memory added up, the hottest."""

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
        # Where only the job's own engine time can be read, that is what is known of the load.
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
