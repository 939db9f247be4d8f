"""What a job did on its GPUs between two looks at them: how busy it kept them, and why they were slow.

A GPU is looked at less often than the rest, and samples in between repeat what was read last; so the time of
one look reaches from the sample that first had it to the sample that has the next."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from joblens.model.sample import GpuReading, Sample

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
    """One device. Samples that did not look, or had it not yet, end a span."""
    before: tuple[int, GpuReading] | None = None
    seen_us = 0  # the last sample that repeated `before`
    for sample in samples:
        reading = (sample.gpus or {}).get(name)
        if reading is not None and before is not None and reading != before[1]:
            seconds = (sample.elapsed_us - before[0]) / 1e6
            yield GpuSpan(seconds, reading, busy_percent(before[1], reading, seconds))
        elif before is not None and reading is None and seen_us > before[0]:
            seconds = (seen_us - before[0]) / 1e6
            yield GpuSpan(seconds, before[1], busy_percent(before[1], before[1], seconds))
        if reading is None:
            before = None
        elif before is None or reading != before[1]:
            before = sample.elapsed_us, reading
        seen_us = sample.elapsed_us
    if before is not None and seen_us > before[0]:
        seconds = (seen_us - before[0]) / 1e6
        yield GpuSpan(seconds, before[1], busy_percent(before[1], before[1], seconds))


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
