"""What a job did with its GPUs, out of its samples: memory, busy time, its share of the energy."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from msgspec import Struct

from joblens.model.jobs.sample import GpuReading, Sample


class GpuDeviceTotals(Struct, frozen=True, kw_only=True):
    """One device over the job's life. Shares are hundredths of a percent, means are over time. `job_*`: the
    job's own part. None: not known."""

    readings: int = 0
    observed_usec: int = 0  # from the first reading to the last
    utilization_mean: int | None = None
    utilization_max: int | None = None
    memory_utilization_mean: int | None = None
    memory_used_mean_bytes: int | None = None
    memory_used_max_bytes: int | None = None
    temperature_max_c: int | None = None
    temperature_mean_c: int | None = None
    power_mean_mw: int | None = None
    power_max_mw: int | None = None
    energy_uj: int | None = None  # of the whole device
    throttle_reasons: int | None = None  # every bit in these readings
    job_processes_max: int | None = None
    job_memory_peak_bytes: int | None = None
    job_memory_mean_bytes: int | None = None
    job_busy_usec: int | None = None
    job_utilization_mean: int | None = None  # busy time out of the observed time
    job_idle_usec: int | None = None  # observed time in which it did nothing there
    job_energy_uj: int | None = None


class GpuTotals(Struct, frozen=True, kw_only=True):
    """Over all of the job's devices. `devices` None: it could not be known which it used."""

    memory_peak_bytes: int | None = None  # over all devices at the same time
    busy_usec: int | None = None
    energy_uj: int | None = None
    devices: dict[str, GpuDeviceTotals] | None = None


_Reading = tuple[int, GpuReading]  # when, in microseconds since the job's start


def gpu_totals(samples: Iterable[Sample]) -> GpuTotals:
    """`samples` in order; those without a reading of GPUs are between two readings."""
    taken = [(sample.elapsed_us, sample.gpus) for sample in samples if sample.gpus is not None]
    if not taken:
        return GpuTotals()
    by_device: dict[str, list[_Reading]] = {}
    for elapsed_us, gpus in taken:
        for device, reading in gpus.items():
            by_device.setdefault(device, []).append((elapsed_us, reading))
    devices = {device: _device_totals(readings) for device, readings in by_device.items()}
    together = [_sum([reading.job_memory_bytes for reading in gpus.values()]) for _, gpus in taken]
    return GpuTotals(
        memory_peak_bytes=_max(together),
        busy_usec=_sum([device.job_busy_usec for device in devices.values()]),
        energy_uj=_sum([device.job_energy_uj for device in devices.values()]),
        devices=devices,
    )


def _device_totals(taken: Sequence[_Reading]) -> GpuDeviceTotals:
    readings = [reading for _, reading in taken]
    observed_usec = taken[-1][0] - taken[0][0]
    busy = [reading.job_busy_usec for reading in readings if reading.job_busy_usec is not None]
    reasons = [reading.throttle_reasons for reading in readings if reading.throttle_reasons is not None]
    energy = [_energy_uj(before, now) for before, now in pairwise(taken)]
    shares = [_energy_share(now) for _, now in taken[1:]]
    return GpuDeviceTotals(
        readings=len(readings),
        observed_usec=observed_usec,
        utilization_mean=_mean(taken, "utilization"),
        utilization_max=_max([reading.utilization for reading in readings]),
        memory_utilization_mean=_mean(taken, "memory_utilization"),
        memory_used_mean_bytes=_mean(taken, "memory_used_bytes"),
        memory_used_max_bytes=_max([reading.memory_used_bytes for reading in readings]),
        temperature_max_c=_max([reading.temperature_c for reading in readings]),
        temperature_mean_c=_mean(taken, "temperature_c"),
        power_mean_mw=_mean(taken, "power_mw"),
        power_max_mw=_max([reading.power_mw for reading in readings]),
        energy_uj=_sum(energy) if energy else None,
        throttle_reasons=_all_bits(reasons) if reasons else None,
        job_processes_max=_max([reading.job_processes for reading in readings]),
        job_memory_peak_bytes=_max([reading.job_memory_bytes for reading in readings]),
        job_memory_mean_bytes=_mean(taken, "job_memory_bytes"),
        job_busy_usec=_counted(busy) if busy else None,
        job_utilization_mean=min(10_000, (_counted(busy) - busy[0]) * 10_000 // observed_usec)
        if busy and observed_usec
        else None,
        job_idle_usec=_idle_usec(taken),
        job_energy_uj=_sum(
            [
                None if drawn is None or share is None else round(drawn * share)
                for drawn, share in zip(energy, shares, strict=True)
            ]
        )
        if energy
        else None,
    )


def _counted(values: Sequence[int]) -> int:
    """What a counter came to. It begins anew where another process took over the measuring."""
    return values[0] + sum(now - before if now >= before else now for before, now in pairwise(values))


def _energy_uj(before: _Reading, now: _Reading) -> int | None:
    """What the device drew between two readings: by its counter, or where it has none, by its power."""
    (began_us, first), (ended_us, last) = before, now
    if first.energy_mj is not None and last.energy_mj is not None:
        return max(0, last.energy_mj - first.energy_mj) * 1000
    if first.power_mw is not None and last.power_mw is not None:
        return (first.power_mw + last.power_mw) * (ended_us - began_us) // 2000
    return None


def _energy_share(reading: GpuReading) -> float | None:
    """Of what the device drew up to this reading. All of it where nobody else is there, what it draws while
    it waits included; otherwise by utilisation, or among processes that all wait, by their number."""
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


def _idle_usec(taken: Sequence[_Reading]) -> int | None:
    if len(taken) < 2 or any(reading.job_utilization is None for _, reading in taken[1:]):
        return None
    return sum(now[0] - before[0] for before, now in pairwise(taken) if now[1].job_utilization == 0)


def _mean(taken: Sequence[_Reading], field: str) -> int | None:
    """Over time: a reading stands for what went before it."""
    known = [(at_us, value) for at_us, reading in taken if (value := getattr(reading, field)) is not None]
    if not known:
        return None
    if len(known) == 1 or known[-1][0] == known[0][0]:
        return int(known[-1][1])
    area = sum(value * (at_us - before_us) for (before_us, _), (at_us, value) in pairwise(known))
    return int(area / (known[-1][0] - known[0][0]) + 0.5)


def _all_bits(values: Sequence[int]) -> int:
    bits = 0
    for value in values:
        bits |= value
    return bits


def _sum(values: Sequence[int | None]) -> int | None:
    """None where one of them is not known. Of nothing it is 0: no device was used."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _max(values: Sequence[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
