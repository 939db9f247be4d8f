"""Samples as the few curves a person looks at: CPU, memory, I/O and processes over time."""

from collections.abc import Sequence

from msgspec import Struct

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
    span_s = (later.elapsed_us - earlier.elapsed_us) / 1e6 if earlier else 0.0
    cpu = read = write = None
    if earlier is not None and span_s > 0:
        cpu_usec = _growth(earlier.cpu_total_usec, later.cpu_total_usec)
        cpu = None if cpu_usec is None else cpu_usec / 1e4 / span_s
        read_bytes = _growth(_read(earlier), _read(later))
        read = None if read_bytes is None else read_bytes / span_s
        write_bytes = _growth(_written(earlier), _written(later))
        write = None if write_bytes is None else write_bytes / span_s
    return Point(later.elapsed_us / 1e6, cpu, memory_in_use(later), read, write, later.processes)


def _growth(earlier: int | None, later: int | None) -> int | None:
    return None if earlier is None or later is None else max(0, later - earlier)


def _read(sample: Sample) -> int | None:
    return sample.io_read_bytes if sample.io_read_bytes is not None else sample.io_call_read_bytes


def _written(sample: Sample) -> int | None:
    return sample.io_write_bytes if sample.io_write_bytes is not None else sample.io_call_write_bytes


def memory_in_use(sample: Sample) -> int | None:
    """What cannot be reclaimed; where its parts are unknown, what the kernel charges in all."""
    parts = (sample.memory_anon_bytes, sample.memory_shmem_bytes, sample.memory_kernel_bytes)
    if parts[0] is None:
        return sample.memory_current_bytes
    return sum(part for part in parts if part is not None)
