"""How much the numbers of a job differ from run to run when nothing was changed; what counts as a change."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from joblens.model.values.units import MIB

LEAST_PERCENT = 10  # of what it was, where nothing is known of earlier runs
# By unit. Less is not told apart from nothing: without, and with, knowing what earlier runs differ by.
_LEAST = {"s": (0.1, 0.02), "bytes": (8 * MIB, MIB), "count": (10, 2), "J": (5, 1), "%": (10, 10)}
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


def change_percent(before: float | None, after: float | None) -> float | None:
    """Of what it was before."""
    return None if before is None or after is None or before <= 0 else 100 * (after - before) / before


def has_changed(before: float | None, after: float | None, unit: str, noise: Noise | None = None) -> bool:
    """The one rule of all comparisons: a number has changed when it differs by more than earlier runs usually
    do (where they are too few: by 10 %, as it is shown) and by enough to be told apart from nothing."""
    if before is None or after is None:
        return False
    gap = abs(after - before)
    if gap < _LEAST[unit][0 if noise is None else 1]:
        return False
    if noise is not None:
        return gap > noise.between_two * min(before, after)
    percent = change_percent(before, after)
    return percent is None or abs(round(percent)) >= LEAST_PERCENT


def is_too_small(percent: float | None, limit_percent: float | None) -> bool:
    """Of a number that has not changed: whether that is so because it is too small to tell."""
    return percent is None or abs(round(percent)) >= (
        LEAST_PERCENT if limit_percent is None else limit_percent
    )


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
