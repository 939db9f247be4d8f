"""Samples as the few curves a person looks at: CPU, memory, I/O and processes over time."""

from collections.abc import Sequence

from msgspec import Struct

from joblens.analysis.rates import cpu_percent, per_second, unreclaimable_bytes
from joblens.model.sample import Sample


class Point(Struct, frozen=True):
    """Rates are over the time since the sample before; None where either reading is unknown."""

    elapsed_s: float
    cpu_percent: float | None = None  # 100 is one core
    memory_bytes: int | None = None  # what cannot be reclaimed
    read_per_s: float | None = None
    write_per_s: float | None = None
    processes: int | None = None

    @property
    def io_per_s(self) -> float | None:
        if self.read_per_s is None and self.write_per_s is None:
            return None
        return (self.read_per_s or 0.0) + (self.write_per_s or 0.0)


def points(samples: Sequence[Sample]) -> list[Point]:
    """One point a sample; the first has no rates."""
    result = []
    earlier: Sample | None = None
    for sample in samples:
        result.append(_point(earlier, sample))
        earlier = sample
    return result


def _point(earlier: Sample | None, later: Sample) -> Point:
    cpu = read = write = None
    if earlier is not None:
        cpu = cpu_percent(earlier, later)
        read = _io_rate(earlier, later, "read")
        write = _io_rate(earlier, later, "write")
    return Point(later.elapsed_us / 1e6, cpu, memory_in_use(later), read, write, later.processes)


def _io_rate(earlier: Sample, later: Sample, direction: str) -> float | None:
    """What reached the devices; where that is unknown, what went through calls."""
    rate = per_second(earlier, later, f"io_{direction}_bytes")
    return rate if rate is not None else per_second(earlier, later, f"io_call_{direction}_bytes")


def memory_in_use(sample: Sample) -> int | None:
    """What cannot be reclaimed; where its parts are unknown, what the kernel charges in all."""
    in_use = unreclaimable_bytes(sample)
    return in_use if in_use is not None else sample.memory_current_bytes
