"""Text charts: sparklines, progress bars and braille curves, and the sample curves they show."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

from joblens.analysis.numbers.rates import cpu_percent, per_second, unreclaimable_bytes
from joblens.model.jobs.sample import Sample
from joblens.views.text.style import Palette

_BLOCKS = "▁▂▃▄▅▆▇█"
_BRAILLE_BASE = 0x2800
# dot bits of one braille cell: [column][row from the bottom]
_DOTS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))
_DOT_ROWS = 4
_DOT_COLUMNS = 2

BAR_LEAST, BAR_MOST = 8, 40

Series = Sequence[float | None]


def spark_line(values: Series, width: int, top: float | None = None) -> str:
    """Draws the last `width` values as blocks from 0 to `top` (or the largest); unknown values are gaps."""
    shown = list(values)[-width:] if width > 0 else []
    highest = top if top is not None else max((value for value in shown if value is not None), default=0.0)
    return "".join(_block(value, highest) for value in shown)


def cpu_spark_line(percents: Series, width: int) -> str:
    """Draws a spark line from 0 to one core, or to the maximum if that is more."""
    highest = max((value for value in percents if value is not None), default=0.0)
    return spark_line(percents, width, top=max(100.0, highest))


def _block(value: float | None, highest: float) -> str:
    if value is None:
        return " "
    if highest <= 0:
        return _BLOCKS[0]
    step = int(value / highest * (len(_BLOCKS) - 1) + 0.5)
    return _BLOCKS[max(0, min(len(_BLOCKS) - 1, step))]


def bar(columns_of: tuple[int, int, int], columns: int, paint: Palette) -> str:
    """Draws progress in `columns`: done, failed and running ones; what remains is left to do."""
    done, failed, running = columns_of
    done = min(done, columns - failed - running)
    parts = (("━", done, "green"), ("x", failed, "red"), ("─", running, "cyan"))
    left = paint.paint("·" * (columns - done - failed - running), "dim")
    return "".join(paint.paint(mark * width, colour) for mark, width, colour in parts) + left


def round_share(count: int, total: int, columns: int) -> int:
    """Returns the columns of a share; only the whole fills all of them."""
    if count >= total:
        return columns
    return min(columns - 1, round(columns * count / total))


def resample(times: Sequence[float], values: Series, columns: int) -> list[float | None]:
    """Returns the maximum in each of `columns` equal slices of time, so that no spike is lost. A reading
    covers the time since the previous one, as a rate does; an unknown one leaves a gap."""
    if not times or columns <= 0:
        return []
    start, span = times[0], (times[-1] - times[0]) or 1.0
    slices: list[float | None] = [None] * columns
    before = -1
    for time, value in zip(times, values, strict=True):
        slot = min(columns - 1, int((time - start) / span * columns))
        if value is not None:
            for covered in range(min(before + 1, slot), slot + 1):
                known = slices[covered]
                slices[covered] = value if known is None else max(known, value)
        before = slot
    return slices


def nice_top(highest: float) -> float:
    """Returns a round end of an axis: the next of 1, 2, 2.5, 5 times a power of ten."""
    if highest <= 0:
        return 1.0
    power = 1.0
    while power * 10 <= highest:
        power *= 10
    while power > highest:
        power /= 10
    return next((power * step for step in (1, 2, 2.5, 5) if power * step >= highest), power * 10)


def nice_top_binary(highest: float) -> float:
    """Returns the same for bytes: powers of two, so that the axis shows 512 MiB, not 476.8 MiB."""
    top = 1024.0
    while top < highest:
        top = top * 1.5 if top * 1.5 >= highest and top >= 2048 else top * 2
    return top


def braille_chart(
    times: Sequence[float],
    values: Series,
    *,
    width: int,
    height: int,
    top: float,
    axis: Callable[[float], str],
) -> list[str]:
    """Draws a filled curve over time: `height` lines of `width` columns, with an axis from 0 to `top`."""
    label_width = max(len(axis(top)), len(axis(0)))
    columns = max(1, width - label_width - 2)
    dots = resample(times, values, columns * _DOT_COLUMNS)
    rows = height * _DOT_ROWS
    levels = [None if value is None else _level(value, top, rows) for value in dots]
    lines = []
    for line in range(height):
        floor = (height - 1 - line) * _DOT_ROWS
        cells = "".join(_cell(levels[2 * c : 2 * c + 2], floor) for c in range(columns))
        label = axis(top) if line == 0 else axis(0) if line == height - 1 else ""
        lines.append(f"{label:>{label_width}} {'┤' if label else '│'}{cells}".rstrip())
    return lines


def _level(value: float, top: float, rows: int) -> int:
    """Returns the height in dots; at least one, so that zero differs from unknown."""
    return max(1, min(rows, round(value / top * rows))) if top > 0 else 1


def _cell(levels: Sequence[int | None], floor: int) -> str:
    bits = 0
    for column, level in enumerate(levels):
        if level is not None:
            for row in range(min(_DOT_ROWS, max(0, level - floor))):
                bits |= _DOTS[column][row]
    return chr(_BRAILLE_BASE + bits) if bits else " "


N = TypeVar("N", int, float)


class Point(Struct, frozen=True):
    """Rates are over the time since the number was last read; None before the first and after the last."""

    elapsed_s: float
    cpu_percent: float | None = None  # 100 is one core
    memory_bytes: int | None = None  # memory that cannot be reclaimed
    read_per_s: float | None = None
    write_per_s: float | None = None
    processes: int | None = None
    network_per_s: float | None = None  # both ways together
    gpu_percent: float | None = None  # 100 is one GPU that the job keeps busy
    gpu_memory_bytes: int | None = None

    @property
    def io_per_s(self) -> float | None:
        if self.read_per_s is None and self.write_per_s is None:
            return None
        return (self.read_per_s or 0.0) + (self.write_per_s or 0.0)


def points(samples: Sequence[Sample]) -> list[Point]:
    """Returns one point per sample; the first has no rates."""
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
    """Caches curves of jobs that are displayed repeatedly; recomputes them for new samples."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Sample, list[Point]]] = {}

    def of(self, samples: Mapping[str, Sequence[Sample]]) -> dict[str, list[Point]]:
        """Returns curves by job. Drops the cache of other jobs."""
        known = {}
        for uuid, job_samples in samples.items():
            before = self._known.get(uuid)
            if before is not None and job_samples and job_samples[-1] is before[0]:
                known[uuid] = before
            elif job_samples:
                known[uuid] = (job_samples[-1], points(job_samples))
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
    """Returns curves of jobs that use a GPU."""
    unknown: list[None] = [None] * len(samples)
    if not any(sample.gpus for sample in samples):
        return list(unknown), list(unknown)
    from joblens.analysis.numbers.gpu import busy_curve, memory_curve

    return busy_curve(samples), memory_curve(samples)


def _io_rates(samples: Sequence[Sample], direction: str) -> list[float | None]:
    """Returns device I/O, or I/O by system calls where that is unknown."""

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
    """Returns the rate at each sample. Counters that are read less often (I/O, to save CPU) are assumed to
    grow evenly between two readings."""
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
    """Returns the last known value of numbers that are not read every time."""
    known = [value for value in values if value is not None]
    return known[-1] if known else None


def memory_in_use(sample: Sample) -> int | None:
    """Returns memory that cannot be reclaimed; if unknown, all memory that the kernel charges."""
    in_use = unreclaimable_bytes(sample)
    return in_use if in_use is not None else sample.memory_current_bytes
