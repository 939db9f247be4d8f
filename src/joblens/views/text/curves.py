"""Samples as the few curves a person looks at: CPU, memory, I/O, network, GPU and processes over time."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

from joblens.analysis.numbers.rates import cpu_percent, per_second, unreclaimable_bytes
from joblens.model.jobs.sample import Sample

N = TypeVar("N", int, float)


class Point(Struct, frozen=True):
    """Rates are over the time since the number was last read; None before the first and after the last."""

    elapsed_s: float
    cpu_percent: float | None = None  # 100 is one core
    memory_bytes: int | None = None  # what cannot be reclaimed
    read_per_s: float | None = None
    write_per_s: float | None = None
    processes: int | None = None
    network_per_s: float | None = None  # both ways together
    gpu_percent: float | None = None  # 100 is one GPU, busy with the job's work all the time
    gpu_memory_bytes: int | None = None

    @property
    def io_per_s(self) -> float | None:
        if self.read_per_s is None and self.write_per_s is None:
            return None
        return (self.read_per_s or 0.0) + (self.write_per_s or 0.0)


def points(samples: Sequence[Sample]) -> list[Point]:
    """One point a sample; the first has no rates."""
    cpu = _spread(samples, lambda sample: sample.cpu_total_usec, cpu_percent)
    read, write = _io_rates(samples, "read"), _io_rates(samples, "write")
    network = _network_rates(samples)
    gpu, gpu_memory = _gpu_curves(samples)
    return [
        Point(
            sample.elapsed_us / 1e6,
            cpu[at],
            memory_in_use(sample),
            read[at],
            write[at],
            sample.processes,
            network[at],
            gpu[at],
            gpu_memory[at],
        )
        for at, sample in enumerate(samples)
    ]


class KnownCurves:
    """Of jobs that are looked at again and again: worked out anew only where a sample has come."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Sample, list[Point]]] = {}

    def of(self, samples: Mapping[str, Sequence[Sample]]) -> dict[str, list[Point]]:
        """By job. What is known of others is forgotten."""
        known = {}
        for uuid, taken in samples.items():
            before = self._known.get(uuid)
            if before is not None and taken and taken[-1] is before[0]:
                known[uuid] = before
            elif taken:
                known[uuid] = (taken[-1], points(taken))
        self._known = known
        return {uuid: curve for uuid, (_, curve) in known.items()}


def _network_rates(samples: Sequence[Sample]) -> list[float | None]:
    if not samples or samples[-1].network_rx_bytes is None:
        return [None] * len(samples)

    def both_ways(earlier: Sample, later: Sample) -> float | None:
        rates = (per_second(earlier, later, f"network_{way}_bytes") for way in ("rx", "tx"))
        known = [rate for rate in rates if rate is not None]
        return sum(known) if known else None

    return _spread(samples, lambda sample: sample.network_rx_bytes, both_ways)


def _gpu_curves(samples: Sequence[Sample]) -> tuple[list[float | None], list[int | None]]:
    """Of jobs that use a GPU; what uses none has no curve."""
    unknown: list[None] = [None] * len(samples)
    if not any(sample.gpus for sample in samples):
        return list(unknown), list(unknown)
    from joblens.analysis.numbers.gpu_use import busy_curve, memory_curve

    return busy_curve(samples), memory_curve(samples)


def _io_rates(samples: Sequence[Sample], direction: str) -> list[float | None]:
    """What reached the devices; where that is unknown, what went through calls."""

    def rates_of(counter: str) -> list[float | None]:
        return _spread(
            samples,
            lambda sample: getattr(sample, counter),
            lambda earlier, later: per_second(earlier, later, counter),
        )

    devices, calls = rates_of(f"io_{direction}_bytes"), rates_of(f"io_call_{direction}_bytes")
    return [call if device is None else device for device, call in zip(devices, calls, strict=True)]


def _spread(
    samples: Sequence[Sample],
    counter: Callable[[Sample], int | None],
    rate: Callable[[Sample, Sample], float | None],
) -> list[float | None]:
    """The rate at each sample. A counter that is read less often than the others (I/O, to save CPU) grew
    evenly between two readings as far as anyone can tell, so all samples between them get that rate."""
    rates: list[float | None] = [None] * len(samples)
    before: int | None = None
    for at, sample in enumerate(samples):
        if counter(sample) is None:
            continue
        if before is not None:
            rates[before + 1 : at + 1] = [rate(samples[before], sample)] * (at - before)
        before = at
    return rates


def last_known(values: Iterable[N | None]) -> N | None:
    """Of numbers that are not all read each time, what stands."""
    known = [value for value in values if value is not None]
    return known[-1] if known else None


def memory_in_use(sample: Sample) -> int | None:
    """What cannot be reclaimed; where its parts are unknown, what the kernel charges in all."""
    in_use = unreclaimable_bytes(sample)
    return in_use if in_use is not None else sample.memory_current_bytes
