"""Units that fit what is drawn."""

import math
from collections.abc import Iterable, Sequence

from msgspec import Struct

from joblens.model.values.units import GIB, MIB


class Scale(Struct, frozen=True):
    """`size` base units (microseconds, bytes) are one unit of the axis."""

    unit: str
    size: float

    def of(self, value: float) -> float:
        return round(value / self.size, 4)

    def all_of(self, values: Iterable[float | None]) -> list[float | None]:
        return [None if value is None else self.of(value) for value in values]

    def times(self, at_us: Sequence[int], zero_us: int) -> list[float]:
        return [self.of(at - zero_us) for at in at_us]


def time_scale(span_us: int) -> Scale:
    seconds = span_us / 1_000_000
    if seconds <= 600:
        return Scale("s", 1e6)
    if seconds <= 3 * 3600:
        return Scale("min", 60e6)
    return Scale("h", 3600e6) if seconds <= 4 * 86400 else Scale("days", 86400e6)


def round_axis(largest: float, room: float, least_step: float = 0.0) -> tuple[float, float]:
    """-> (end, step) of an axis with round numbers at its ticks, that has at least that share of room above
    the largest value: curves on axes of their own do not all run along the same upper edge."""
    wanted = max(largest * (1 + room), least_step)
    if wanted <= 0:
        return 1.0, 0.2
    power = 10.0 ** math.floor(math.log10(wanted / 5))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= wanted / 5 * 0.999)
    step = max(least_step, step if least_step == 0 else math.ceil(step))
    return round(math.ceil(wanted / step - 1e-9) * step, 10), step


def memory_scale(largest_bytes: float | None) -> Scale:
    return Scale("MiB", MIB) if (largest_bytes or 0) < GIB else Scale("GiB", GIB)
