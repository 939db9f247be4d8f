"""What a job did on its GPUs between two looks at them: how busy it kept them, and why they were slow.

A GPU is looked at less often than the rest: samples in between have no `gpus`, and say nothing of them."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from joblens.model.jobs.sample import GpuReading, Sample

IDLE_PERCENT = 5.0  # below that a GPU does nothing worth its place
# Bits as NVML names them. What is not here is no slowdown: idle, clocks somebody set, a wait for others.
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
# At full load the power cap is what sets the clocks of most GPUs: nothing to act on.
SLOWED_BITS = 0x8 | 0x20 | 0x40 | 0x80


class GpuSpan(Struct, frozen=True):
    """One device over the time between two looks."""

    seconds: float
    reading: GpuReading  # of the later look
    busy_percent: float | None  # by the job, or by anybody where it cannot be told apart


def throttle_words(bits: int) -> list[str]:
    known = [word for bit, word in THROTTLE_WORDS.items() if bits & bit]
    rest = bits & ~sum(THROTTLE_WORDS)
    return [*known, f"reason 0x{rest:x}"] if rest else known


def has_part(reading: GpuReading) -> bool:
    """Whether anything of the job is on the device."""
    return any(
        (reading.job_processes, reading.job_memory_bytes, reading.job_utilization, reading.job_busy_usec)
    )


def gpus_used(samples: Sequence[Sample]) -> list[str]:
    """Devices on which something of the job was seen, by id."""
    used = {name for sample in samples for name, reading in (sample.gpus or {}).items() if has_part(reading)}
    return sorted(used)


def gpu_memory_bytes(sample: Sample) -> int | None:
    """The job's own, over all devices."""
    if sample.gpus is None:
        return None
    known = [reading.job_memory_bytes for reading in sample.gpus.values()]
    sizes = [size for size in known if size is not None]
    return sum(sizes) if sizes or not known else None


def busy_percent(earlier: GpuReading | None, later: GpuReading, seconds: float) -> float | None:
    """Time the job's work kept the device busy, or the share its driver gives; where neither is told, how
    busy the device was with anybody's work: at least the job's."""
    if earlier is not None and earlier.job_busy_usec is not None and later.job_busy_usec is not None:
        grown = later.job_busy_usec - earlier.job_busy_usec
        if seconds > 0 and grown >= 0:
            return min(100.0, grown / seconds / 10_000)
    share = later.job_utilization if later.job_utilization is not None else later.utilization
    return None if share is None else share / 100


def spans_of(samples: Sequence[Sample], name: str) -> Iterator[GpuSpan]:
    """One device, from each look at it to the next; a look that did not find it there ends the row."""
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
    """How busy the job kept its GPUs at each sample, added up: 100 is one GPU. Samples between two looks have
    what the later one tells; None before the first and after the last, and where nobody knows."""
    curve: list[float | None] = [None] * len(samples)
    before: int | None = None
    for place, sample in enumerate(samples):
        if sample.gpus is None:
            continue
        if before is not None:
            busy = busy_together(samples[before], sample)
            curve[before + 1 : place + 1] = [busy] * (place - before)
        before = place
    return curve


def busy_together(earlier: Sample, later: Sample) -> float | None:
    """How busy the job kept all of its GPUs between two looks: 100 is one."""
    seconds = (later.elapsed_us - earlier.elapsed_us) / 1e6
    shares = [
        busy_percent((earlier.gpus or {}).get(name), reading, seconds)
        for name, reading in (later.gpus or {}).items()
        if has_part(reading)
    ]
    known = [share for share in shares if share is not None]
    return sum(known) if known or not shares else None


def memory_curve(samples: Sequence[Sample]) -> list[int | None]:
    """The job's own memory on all GPUs; between two looks what the earlier one saw."""
    curve: list[int | None] = []
    for sample in samples:
        standing = curve[-1] if curve else None
        curve.append(standing if sample.gpus is None else gpu_memory_bytes(sample))
    return curve


class GpuShare(Struct, frozen=True):
    """Of the time in which the job was looked at: idle, and how busy on average, over `devices` GPUs."""

    looked_s: float
    idle_s: float
    mean_percent: float


def gpu_share(samples: Sequence[Sample], devices: int) -> GpuShare | None:
    """`devices`: how many it had; those that it never touched were idle. Time in which nobody told how busy
    they were does not count. None where no time is left."""
    looked = [sample.elapsed_us for sample in samples if sample.gpus is not None]
    if len(looked) < 2 or devices < 1:
        return None
    looked_s = (looked[-1] - looked[0]) / 1e6
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
    known_s = looked_s * count - unknown_s
    if known_s <= 0:
        return None
    return GpuShare(known_s / count, max(0.0, known_s - active_s) / count, 100 * busy_s / known_s)


def slowed_share(samples: Sequence[Sample], name: str) -> tuple[float, int]:
    """Of the time in which the job used the device: how much of it the device was held back, and by what."""
    spans = [span for span in spans_of(samples, name) if has_part(span.reading)]
    whole_s = sum(span.seconds for span in spans)
    held = [span for span in spans if (span.reading.throttle_reasons or 0) & SLOWED_BITS]
    reasons = 0
    for span in held:
        reasons |= (span.reading.throttle_reasons or 0) & SLOWED_BITS
    return (sum(span.seconds for span in held) / whole_s if whole_s > 0 else 0.0), reasons
