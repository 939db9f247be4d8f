"""How much the numbers of a job differ from run to run when nothing was changed."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

_LEAST_RUNS = 4  # fewer say nothing about their spread
_ENOUGH_FOR_MEDIANS = 8  # from here on outliers do not count
_MAD_TO_SIGMA = 1.4826
_SIGMAS = 3.0


class Noise(Struct, frozen=True):
    sigma: float  # relative
    runs: int

    @property
    def between_two(self) -> float:
        """A change by more than this is not what two runs usually differ by: relative, of the smaller one."""
        return math.expm1(_SIGMAS * math.sqrt(2) * self.sigma)


def noise_of(groups: Iterable[Sequence[float]]) -> Noise | None:
    """`groups`: values of runs that were alike. Each is compared with the median of its own group only, so
    that groups which do different things make no noise. None: too few."""
    deviations: list[float] = []
    freedom = runs = 0
    for values in groups:
        middle = statistics.median(values) if len(values) > 1 else 0.0
        if middle <= 0:
            continue
        deviations += [value / middle - 1 for value in values]
        freedom += len(values) - 1
        runs += len(values)
    if runs < _LEAST_RUNS:
        return None
    if runs >= _ENOUGH_FOR_MEDIANS:
        spread = _MAD_TO_SIGMA * statistics.median(abs(one) for one in deviations)
        return Noise(spread * math.sqrt(runs / freedom), runs)
    return Noise(math.sqrt(sum(one * one for one in deviations) / freedom), runs)


def noises(groups: Iterable[Sequence[Mapping[str, float | None]]]) -> dict[str, Noise]:
    """By number; `groups`: the numbers of runs that were alike."""
    found: dict[str, Noise] = {}
    kept = [list(group) for group in groups]
    keys = {key for group in kept for numbers in group for key in numbers}
    for key in keys:
        values = [[value for numbers in group if (value := numbers.get(key)) is not None] for group in kept]
        noise = noise_of(values)
        if noise is not None:
            found[key] = noise
    return found
