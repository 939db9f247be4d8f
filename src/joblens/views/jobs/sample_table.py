"""Samples as a table that grows: one line each, columns that stay where they are."""

from collections.abc import Callable, Iterator

from joblens.analysis.numbers.gpu_use import busy_together, gpu_memory_bytes
from joblens.analysis.numbers.rates import cpu_percent, elapsed_usec, per_second
from joblens.model.jobs.sample import Sample
from joblens.model.values.units import format_instant
from joblens.views.text.curves import memory_in_use
from joblens.views.text.numbers import compact_bytes, percent
from joblens.views.text.style import Palette, pad_left

_SHORTEST_USEC = 40_000  # a rate over less than four ticks of the kernel would be made of nothing
_TITLES = ("CPU", "MEMORY", "READ/S", "WRITE/S", "NET IN/S", "NET OUT/S")
_GPU_TITLES = ("GPU", "GPU MEM")
_NARROWEST = 6
_GAP = "  "
_CLOCK, _TENTHS = 8, 10  # columns of 10:30:01 and of 10:30:01.5


class SampleTable:
    """Rates are over the time since the number was last read. The titles come before the first line, and
    once more when a GPU shows up in a job of which nobody knew that it has one."""

    def __init__(self, paint: Palette, *, interval_s: float, has_gpu: bool) -> None:
        self._paint = paint
        self._digits = _CLOCK if interval_s >= 1 else _TENTHS
        self._has_gpu = has_gpu
        self._is_titled = False
        self._before: dict[str, Sample] = {}

    def pass_over(self, sample: Sample) -> None:
        """One that is not shown; the next is measured from it."""
        self._cells(sample)

    def lines(self, sample: Sample) -> Iterator[str]:
        cells = self._cells(sample)
        if sample.gpus and not self._has_gpu:
            self._has_gpu, self._is_titled = True, False
        titles = [*_TITLES, *(_GPU_TITLES if self._has_gpu else ())]
        if not self._is_titled:
            self._is_titled = True
            yield self._paint.paint(self._line("TIME".ljust(self._digits), titles, titles), "bold")
        yield self._line(format_instant(sample.at_us)[11 : 11 + self._digits], cells, titles)

    def _line(self, time: str, cells: list[str], titles: list[str]) -> str:
        # strict=False: without a GPU its cells have no titles
        shown = [
            pad_left(cell, max(_NARROWEST, len(title))) for cell, title in zip(cells, titles, strict=False)
        ]
        return _GAP.join([time, *shown])

    def _cells(self, sample: Sample) -> list[str]:
        return [
            percent(self._rate(sample, "cpu_total_usec", cpu_percent)),
            compact_bytes(memory_in_use(sample)),
            *(compact_bytes(self._io_rate(sample, way)) for way in ("read", "write")),
            *(compact_bytes(self._growth(sample, f"network_{way}_bytes")) for way in ("rx", "tx")),
            percent(self._rate(sample, "gpus", busy_together)),
            compact_bytes(gpu_memory_bytes(sample)),
        ]

    def _io_rate(self, sample: Sample, way: str) -> float | None:
        """What reached the devices; where that is unknown, what went through calls."""
        devices, calls = (self._growth(sample, f"{kind}_{way}_bytes") for kind in ("io", "io_call"))
        return calls if devices is None else devices

    def _growth(self, sample: Sample, counter: str) -> float | None:
        return self._rate(sample, counter, lambda earlier, later: per_second(earlier, later, counter))

    def _rate(
        self, sample: Sample, counter: str, rate: Callable[[Sample, Sample], float | None]
    ) -> float | None:
        if getattr(sample, counter) is None:
            return None
        before = self._before.get(counter)
        if before is not None and (elapsed_usec(before, sample) or 0) < _SHORTEST_USEC:
            return None
        self._before[counter] = sample
        return None if before is None else rate(before, sample)
