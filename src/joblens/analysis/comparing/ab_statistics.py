"""Comparing measured times: a ratio that outliers do not move, its confidence interval without assuming any
distribution, which runs stand out, and how small a difference could have been seen.

Times are compared by their logarithms: what disturbs a run takes a share of it, and a ratio read from either
side is the same."""

import math
from collections.abc import Sequence
from statistics import NormalDist, median

from msgspec import Struct

from joblens.analysis.comparing.rank_distributions import median_cut, rank_sum_cut, signed_rank_cut

CONFIDENCE = 0.95
_POWER = 0.8  # a difference counts as detectable when it would be seen four times out of five
_SIGMA_OF_MAD = 1.4826  # a normal distribution's spread in terms of its median deviation
_OUTLIER_SIGMAS = 3.5
_LEAST_FOR_OUTLIERS = 5
_LEAST_SPREAD = 0.005  # of the median: clocks and schedulers alone do as much
_RANK_EFFICIENCY = 3 / math.pi  # of rank methods, beside the mean of normal values


class Interval(Struct, frozen=True):
    low: float
    high: float
    confidence: float  # that it really has, at least what was asked for

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


class Ratio(Struct, frozen=True, kw_only=True):
    """`value` times as much as the baseline."""

    value: float
    interval: Interval | None  # None: too few runs for that confidence
    pairs: int  # of runs side by side; 0: the runs were taken as two heaps
    detectable: float | None  # the least relative difference that so many runs would mostly show
    method: str

    @property
    def differs(self) -> bool | None:
        """Whether the interval leaves out 1; None where there is no interval."""
        return None if self.interval is None else not self.interval.holds(1.0)

    @property
    def half_width(self) -> float | None:
        """Of the interval, relative."""
        if self.interval is None:
            return None
        return math.sqrt(self.interval.high / self.interval.low) - 1


def paired_ratio(values: Sequence[float], baseline: Sequence[float], confidence: float = CONFIDENCE) -> Ratio:
    """Of runs that were made side by side, place by place: whatever slowed both down cancels. The estimate is
    the median of all means of two (Hodges and Lehmann), the interval Wilcoxon's signed-rank one, exact."""
    if len(values) != len(baseline):
        raise ValueError("as many values as in the baseline are needed")
    logs = [math.log(value / before) for value, before in zip(values, baseline, strict=True)]
    means = sorted((logs[i] + logs[j]) / 2 for i in range(len(logs)) for j in range(i, len(logs)))
    cut = signed_rank_cut(len(logs), 1 - confidence)
    interval = _interval_of(means, cut)
    return Ratio(
        value=math.exp(median(means)),
        interval=_exponential(interval),
        pairs=len(logs),
        detectable=_detectable(_spread(logs) / math.sqrt(len(logs)), interval, confidence),
        method="signed ranks of pairs",
    )


def heap_ratio(values: Sequence[float], baseline: Sequence[float], confidence: float = CONFIDENCE) -> Ratio:
    """Of runs that have nothing to do with each other: the median of all differences, with the exact interval
    of Mann and Whitney."""
    ours, theirs = [math.log(value) for value in values], [math.log(value) for value in baseline]
    differences = sorted(one - other for one in ours for other in theirs)
    cut = rank_sum_cut(len(ours), len(theirs), 1 - confidence)
    interval = _interval_of(differences, cut)
    error = math.sqrt(_spread(ours) ** 2 / len(ours) + _spread(theirs) ** 2 / len(theirs))
    return Ratio(
        value=math.exp(median(differences)),
        interval=_exponential(interval),
        pairs=0,
        detectable=_detectable(error, interval, confidence),
        method="rank sums of two heaps",
    )


def ratio_of(values: Sequence[float], baseline: Sequence[float], confidence: float = CONFIDENCE) -> Ratio:
    """Paired where there are enough pairs for an interval, else as heaps, which need fewer runs."""
    same = len(values) == len(baseline)
    if same and signed_rank_cut(len(values), 1 - confidence) is not None:
        return paired_ratio(values, baseline, confidence)
    return heap_ratio(values, baseline, confidence)


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """In which the median of endless runs lies; None: too few of them."""
    return _interval_of(sorted(values), median_cut(len(values), 1 - confidence))


def outliers(values: Sequence[float]) -> list[int]:
    """Places of values that are far from all others, by the median and the median distance from it. Nothing
    is left out of any estimate because of it: it is told."""
    if len(values) < _LEAST_FOR_OUTLIERS:
        return []
    logs = [math.log(value) if value > 0 else None for value in values]
    known = [value for value in logs if value is not None]
    if not known:
        return []
    middle = median(known)
    far = _OUTLIER_SIGMAS * max(_spread(known), _LEAST_SPREAD)
    return [place for place, value in enumerate(logs) if value is not None and abs(value - middle) > far]


def _spread(logs: Sequence[float]) -> float:
    """A standard deviation that a few outliers do not blow up."""
    middle = median(logs)
    by_deviation = _SIGMA_OF_MAD * median(abs(value - middle) for value in logs)
    if by_deviation > 0 or len(logs) < 2:
        return by_deviation
    mean = math.fsum(logs) / len(logs)  # more than half of them are the same
    return math.sqrt(math.fsum((value - mean) ** 2 for value in logs) / (len(logs) - 1))


def _detectable(by_spread: float, interval: Interval | None, confidence: float) -> float | None:
    """From the standard error of the estimate: by the spread, or by the interval (of logarithms) where that
    is wider, as it is when most runs agree and some are far off."""
    sure = NormalDist().inv_cdf((1 + confidence) / 2)
    by_interval = 0.0 if interval is None else (interval.high - interval.low) / 2 / sure
    standard_error = max(by_spread / math.sqrt(_RANK_EFFICIENCY), by_interval)
    if standard_error <= 0:
        return None
    return math.exp((sure + NormalDist().inv_cdf(_POWER)) * standard_error) - 1


def _interval_of(ordered: Sequence[float], cut: tuple[int, float] | None) -> Interval | None:
    if cut is None or not ordered:
        return None
    k, confidence = cut
    return Interval(ordered[k], ordered[len(ordered) - 1 - k], confidence)


def _exponential(logs: Interval | None) -> Interval | None:
    return None if logs is None else Interval(math.exp(logs.low), math.exp(logs.high), logs.confidence)
