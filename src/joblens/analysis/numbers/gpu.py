"""GPU use of a job: busy time and throttling between samples; memory, busy time and energy in total.

GPUs are sampled less often than the rest: samples in between have no `gpus`.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from msgspec import Struct

from joblens.model.jobs.sample import GpuReading, Sample
from joblens.model.values.sums import sum_of_all

IDLE_PERCENT = 5.0  # below this a GPU is idle
# Bits of NVML.
THROTTLE_WORDS = {
    0x1: "idle",
    0x2: "clocks set by an application",
    0x4: "power cap (software)",
    0x8: "slowed by the hardware",
    0x10: "in step with other GPUs",
    0x20: "too hot (software)",
    0x40: "too hot (hardware)",
    0x80: "power brake (hardware)",
    0x100: "display clocks",
}
# Without the software power cap, which sets the clocks of most GPUs at full load.
SLOWED_BITS = 0x8 | 0x20 | 0x40 | 0x80


class GpuSpan(Struct, frozen=True):
    """One device between two samples."""

    seconds: float
    reading: GpuReading  # of the later sample
    busy_percent: float | None  # by the job, or by all users if indistinguishable


def throttle_words(bits: int) -> list[str]:
    known = [word for bit, word in THROTTLE_WORDS.items() if bits & bit]
    rest = bits & ~sum(THROTTLE_WORDS)
    return [*known, f"reason 0x{rest:x}"] if rest else known


def has_part(reading: GpuReading) -> bool:
    """Returns whether the job uses the device."""
    return any(
        (reading.job_processes, reading.job_memory_bytes, reading.job_utilization, reading.job_busy_usec)
    )


def gpus_used(samples: Sequence[Sample]) -> list[str]:
    """Returns devices that the job used, by id."""
    used = {name for sample in samples for name, reading in (sample.gpus or {}).items() if has_part(reading)}
    return sorted(used)


def gpu_memory_bytes(sample: Sample) -> int | None:
    """Returns the job's memory over all devices."""
    if sample.gpus is None:
        return None
    known = [reading.job_memory_bytes for reading in sample.gpus.values()]
    sizes = [size for size in known if size is not None]
    return sum(sizes) if sizes or not known else None


def busy_percent(earlier: GpuReading | None, later: GpuReading, seconds: float) -> float | None:
    """Returns the job's busy time of the device, or the driver's figure; if neither is known, the device's
    total as an upper bound."""
    if earlier is not None and earlier.job_busy_usec is not None and later.job_busy_usec is not None:
        grown = later.job_busy_usec - earlier.job_busy_usec
        if seconds > 0 and grown >= 0:
            return min(100.0, grown / seconds / 10_000)
    share = later.job_utilization if later.job_utilization is not None else later.utilization
    return None if share is None else share / 100


def spans_of(samples: Sequence[Sample], name: str) -> Iterator[GpuSpan]:
    """Yields intervals between samples of one device; a sample without it ends the series."""
    before: tuple[int, GpuReading] | None = None
    for sample in samples:
        if sample.gpus is None:
            continue
        reading = sample.gpus.get(name)
        if reading is not None and before is not None:
            seconds = (sample.elapsed_us - before[0]) / 1e6
            yield GpuSpan(seconds, reading, busy_percent(before[1], reading, seconds))
        before = None if reading is None else (sample.elapsed_us, reading)


def busy_curve(samples: Sequence[Sample]) -> list[float | None]:
    """Returns the busy time of the job's GPUs at each sample, summed: 100 is one GPU. Samples in between have
    the value of the later one; None before the first, after the last, and if unknown."""
    curve: list[float | None] = [None] * len(samples)
    before: int | None = None
    for index, sample in enumerate(samples):
        if sample.gpus is None:
            continue
        if before is not None:
            busy = busy_together(samples[before], sample)
            curve[before + 1 : index + 1] = [busy] * (index - before)
        before = index
    return curve


def busy_together(earlier: Sample, later: Sample) -> float | None:
    """Returns the busy time of all its GPUs between two samples: 100 is one."""
    seconds = (later.elapsed_us - earlier.elapsed_us) / 1e6
    shares = [
        busy_percent((earlier.gpus or {}).get(name), reading, seconds)
        for name, reading in (later.gpus or {}).items()
        if has_part(reading)
    ]
    known = [share for share in shares if share is not None]
    return sum(known) if known or not shares else None


def memory_curve(samples: Sequence[Sample]) -> list[int | None]:
    """Returns the job's memory on all GPUs at each sample; in between, that of the earlier one."""
    curve: list[int | None] = []
    for sample in samples:
        last = curve[-1] if curve else None
        curve.append(last if sample.gpus is None else gpu_memory_bytes(sample))
    return curve


class GpuShare(Struct, frozen=True):
    """Idle time and mean utilization over `devices` GPUs, of the sampled time."""

    observed_s: float
    idle_s: float
    mean_percent: float


def gpu_share(samples: Sequence[Sample], devices: int) -> GpuShare | None:
    """Returns the share. `devices`: GPUs of the job; unused ones were idle. Time of unknown utilization is
    excluded; None if no time remains."""
    observed = [sample.elapsed_us for sample in samples if sample.gpus is not None]
    if len(observed) < 2 or devices < 1:
        return None
    observed_s = (observed[-1] - observed[0]) / 1e6
    used = gpus_used(samples)
    busy_s = active_s = unknown_s = 0.0
    for name in used:
        for span in spans_of(samples, name):
            if span.busy_percent is None:
                unknown_s += span.seconds
                continue
            busy_s += span.seconds * span.busy_percent / 100
            active_s += span.seconds if span.busy_percent >= IDLE_PERCENT else 0.0
    count = max(devices, len(used))
    known_s = observed_s * count - unknown_s
    if known_s <= 0:
        return None
    return GpuShare(known_s / count, max(0.0, known_s - active_s) / count, 100 * busy_s / known_s)


def slowed_share(samples: Sequence[Sample], name: str) -> tuple[float, int]:
    """Returns (share of the job's time on the device in which it was throttled, reasons)."""
    spans = [span for span in spans_of(samples, name) if has_part(span.reading)]
    whole_s = sum(span.seconds for span in spans)
    held = [span for span in spans if (span.reading.throttle_reasons or 0) & SLOWED_BITS]
    reasons = 0
    for span in held:
        reasons |= (span.reading.throttle_reasons or 0) & SLOWED_BITS
    return (sum(span.seconds for span in held) / whole_s if whole_s > 0 else 0.0), reasons


class GpuDeviceTotals(Struct, frozen=True, kw_only=True):
    """One device over the job's life. Shares are hundredths of a percent, means are over time. `job_*`: the
    job's part. None: unknown."""

    utilization_mean: int | None = None
    memory_utilization_mean: int | None = None
    memory_used_max_bytes: int | None = None
    temperature_max_c: int | None = None
    power_mean_mw: int | None = None
    energy_uj: int | None = None  # of the whole device
    job_memory_peak_bytes: int | None = None
    job_busy_usec: int | None = None
    job_utilization_mean: int | None = None  # busy time out of the observed time
    job_energy_uj: int | None = None


class GpuTotals(Struct, frozen=True, kw_only=True):
    """Totals over all devices of the job. `devices` None: unknown."""

    memory_peak_bytes: int | None = None  # over all devices at the same time
    busy_usec: int | None = None
    energy_uj: int | None = None
    devices: dict[str, GpuDeviceTotals] | None = None


_Reading = tuple[int, GpuReading]  # when, in microseconds since the job's start


def gpu_totals(samples: Iterable[Sample]) -> GpuTotals:
    """Sums samples, in order; those without GPUs are skipped."""
    timed = [(sample.elapsed_us, sample.gpus) for sample in samples if sample.gpus is not None]
    if not timed:
        return GpuTotals()
    by_device: dict[str, list[_Reading]] = {}
    for elapsed_us, gpus in timed:
        for device, reading in gpus.items():
            by_device.setdefault(device, []).append((elapsed_us, reading))
    devices = {device: _device_totals(readings) for device, readings in by_device.items()}
    together = [sum_of_all([reading.job_memory_bytes for reading in gpus.values()]) for _, gpus in timed]
    return GpuTotals(
        memory_peak_bytes=_max(together),
        busy_usec=sum_of_all([device.job_busy_usec for device in devices.values()]),
        energy_uj=sum_of_all([device.job_energy_uj for device in devices.values()]),
        devices=devices,
    )


def _device_totals(timed: Sequence[_Reading]) -> GpuDeviceTotals:
    readings = [reading for _, reading in timed]
    observed_usec = timed[-1][0] - timed[0][0]
    busy = [reading.job_busy_usec for reading in readings if reading.job_busy_usec is not None]
    energy = [_energy_uj(before, now) for before, now in pairwise(timed)]
    shares = [_energy_share(now) for _, now in timed[1:]]
    return GpuDeviceTotals(
        utilization_mean=_mean(timed, "utilization"),
        memory_utilization_mean=_mean(timed, "memory_utilization"),
        memory_used_max_bytes=_max([reading.memory_used_bytes for reading in readings]),
        temperature_max_c=_max([reading.temperature_c for reading in readings]),
        power_mean_mw=_mean(timed, "power_mw"),
        energy_uj=sum_of_all(energy) if energy else None,
        job_memory_peak_bytes=_max([reading.job_memory_bytes for reading in readings]),
        job_busy_usec=_counted(busy) if busy else None,
        job_utilization_mean=min(10_000, (_counted(busy) - busy[0]) * 10_000 // observed_usec)
        if busy and observed_usec
        else None,
        job_energy_uj=sum_of_all(
            [
                None if drawn is None or share is None else round(drawn * share)
                for drawn, share in zip(energy, shares, strict=True)
            ]
        )
        if energy
        else None,
    )


def _counted(values: Sequence[int]) -> int:
    """Returns the total of a counter that restarts when another process continues the measurement."""
    return values[0] + sum(now - before if now >= before else now for before, now in pairwise(values))


def _energy_uj(before: _Reading, now: _Reading) -> int | None:
    """Returns the device's energy between two readings, by its counter, otherwise by its power."""
    (began_us, first), (ended_us, last) = before, now
    if first.energy_mj is not None and last.energy_mj is not None:
        return max(0, last.energy_mj - first.energy_mj) * 1000
    if first.power_mw is not None and last.power_mw is not None:
        return (first.power_mw + last.power_mw) * (ended_us - began_us) // 2000
    return None


def _energy_share(reading: GpuReading) -> float | None:
    """Returns the job's share of the device's energy up to this reading: all of it, including idle power, if
    the job is alone; otherwise by utilization, or among idle processes by their number."""
    own, everyone = reading.job_processes, reading.processes
    if own is None:
        return None
    if own == 0 and not reading.job_utilization:
        return 0.0
    if everyone is not None and own >= everyone:
        return 1.0
    job, device = reading.job_utilization, reading.utilization
    if job is None or device is None:
        return None
    if not job and not device:
        return own / everyone if everyone else 1.0
    return job / max(job, device)


def _mean(timed: Sequence[_Reading], field: str) -> int | None:
    """Returns the mean over time; a reading covers the time before it."""
    known = [(at_us, value) for at_us, reading in timed if (value := getattr(reading, field)) is not None]
    if not known:
        return None
    if len(known) == 1 or known[-1][0] == known[0][0]:
        return int(known[-1][1])
    area = sum(value * (at_us - before_us) for (before_us, _), (at_us, value) in pairwise(known))
    return int(area / (known[-1][0] - known[0][0]) + 0.5)


def _max(values: Sequence[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
