"""Benchmark results as plain documents, and their comparison by robust ratios with exact rank-based
confidence intervals. Times are compared by their logarithms, because disturbances are proportional, and the
ratio in the other direction is the inverse.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist, fmean, median, stdev
from typing import Any

from msgspec import Struct

from joblens.analysis.formats.history import returncode_of, usage_form
from joblens.model.jobs.job import Record, Status, Usage
from joblens.model.values.units import format_instant, in_mb

_EXACT_PAIRS = 80  # beyond this, the normal approximation is correct to four digits
_EXACT_RUNS = 40


def signed_rank_cut(pairs: int, alpha: float) -> tuple[int, float] | None:
    """Returns (k, confidence): the interval ends at the k-th smallest and k-th largest (from 0) of all
    pairwise means. None: too few values for this confidence."""
    total = pairs * (pairs + 1) // 2
    if pairs > _EXACT_PAIRS:
        spread = math.sqrt(total * (2 * pairs + 1) / 12)
        return _approximate_cut(total, spread, alpha)
    return _exact_cut(_signed_rank_counts(pairs), alpha)


def rank_sum_cut(first: int, second: int, alpha: float) -> tuple[int, float] | None:
    """Returns the same for all differences between values of the two groups."""
    total = first * second
    if max(first, second) > _EXACT_RUNS:
        spread = math.sqrt(total * (first + second + 1) / 12)
        return _approximate_cut(total, spread, alpha)
    return _exact_cut(_rank_sum_counts(first, second), alpha)


def median_cut(count: int, alpha: float) -> tuple[int, float] | None:
    """Returns the same for values and their median."""
    return _exact_cut(tuple(math.comb(count, k) for k in range(count + 1)), alpha)


def _exact_cut(counts: tuple[int, ...], alpha: float) -> tuple[int, float] | None:
    everything = sum(counts)
    below, found = 0, None
    for k, count in enumerate(counts):
        below += count
        missed = 2 * below / everything
        if missed > alpha:
            break
        found = (k, 1 - missed)
    return found


def _approximate_cut(total: int, spread: float, alpha: float) -> tuple[int, float]:
    k = math.floor(total / 2 + NormalDist().inv_cdf(alpha / 2) * spread - 0.5)
    return max(0, k), 1 - alpha


@functools.lru_cache(maxsize=128)
def _signed_rank_counts(pairs: int) -> tuple[int, ...]:
    """Returns how many subsets of 1…n have each sum."""
    counts = [1]
    for rank in range(1, pairs + 1):
        longer = counts + [0] * rank
        for index, count in enumerate(counts):
            longer[index + rank] += count
        counts = longer
    return tuple(counts)


@functools.lru_cache(maxsize=128)
def _rank_sum_counts(first: int, second: int) -> tuple[int, ...]:
    """Returns the coefficients of the Gaussian binomial: how many interleavings have each number of
    inversions."""
    size = first * second + 1
    counts = [1] + [0] * (size - 1)
    for step in range(1, first + 1):
        for index in range(size - 1, second + step - 1, -1):  # times 1 - x^(second + step)
            counts[index] -= counts[index - second - step]
        for index in range(step, size):  # divided by 1 - x^step
            counts[index] += counts[index - step]
    return tuple(counts)


CONFIDENCE = 0.95
_POWER = 0.8  # probability of finding a detectable difference
_SIGMA_OF_MAD = 1.4826  # standard deviation per median absolute deviation, for normal values
_OUTLIER_SIGMAS = 3.5
_LEAST_FOR_OUTLIERS = 5
_LEAST_SPREAD = 0.005  # of the median: caused by clocks and schedulers
_RANK_EFFICIENCY = 3 / math.pi  # of rank methods relative to the mean, for normal values


class Interval(Struct, frozen=True):
    low: float
    high: float
    confidence: float  # actual coverage, at least the requested one

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


class Ratio(Struct, frozen=True, kw_only=True):
    """`value` times as much as the baseline."""

    value: float
    interval: Interval | None  # None: too few runs for that confidence
    pairs: int  # of paired runs; 0: the runs are independent
    detectable: float | None  # smallest relative difference that this many runs detect with _POWER
    method: str

    @property
    def differs(self) -> bool | None:
        """Returns whether the interval excludes 1; None without an interval."""
        return None if self.interval is None else not self.interval.holds(1.0)

    @property
    def half_width(self) -> float | None:
        """Returns half the relative width of the interval."""
        if self.interval is None:
            return None
        return math.sqrt(self.interval.high / self.interval.low) - 1


def paired_ratio(values: Sequence[float], baseline: Sequence[float], confidence: float = CONFIDENCE) -> Ratio:
    """Compares paired runs, in which common disturbances cancel. The estimate is the median of all pairwise
    means (Hodges-Lehmann) with the exact signed-rank interval (Wilcoxon)."""
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


def unpaired_ratio(
    values: Sequence[float], baseline: Sequence[float], confidence: float = CONFIDENCE
) -> Ratio:
    """Compares independent runs by the median of all differences with the exact rank-sum interval
    (Mann-Whitney)."""
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
        method="rank sums of two heaps",  # stored in documents
    )


def ratio_of(values: Sequence[float], baseline: Sequence[float], confidence: float = CONFIDENCE) -> Ratio:
    """Compares runs as pairs if there are enough for an interval, otherwise as independent runs, which need
    fewer."""
    same = len(values) == len(baseline)
    if same and signed_rank_cut(len(values), 1 - confidence) is not None:
        return paired_ratio(values, baseline, confidence)
    return unpaired_ratio(values, baseline, confidence)


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """Returns the interval of the median of infinitely many runs; None: too few runs."""
    return _interval_of(sorted(values), median_cut(len(values), 1 - confidence))


def outliers(values: Sequence[float]) -> list[int]:
    """Returns indexes of outliers by the median absolute deviation. They are reported, not excluded."""
    if len(values) < _LEAST_FOR_OUTLIERS:
        return []
    logs = [math.log(value) if value > 0 else None for value in values]
    known = [value for value in logs if value is not None]
    if not known:
        return []
    middle = median(known)
    far = _OUTLIER_SIGMAS * max(_spread(known), _LEAST_SPREAD)
    return [index for index, value in enumerate(logs) if value is not None and abs(value - middle) > far]


def _spread(logs: Sequence[float]) -> float:
    """Returns a standard deviation that is robust against a few outliers."""
    middle = median(logs)
    by_deviation = _SIGMA_OF_MAD * median(abs(value - middle) for value in logs)
    if by_deviation > 0 or len(logs) < 2:
        return by_deviation
    mean = math.fsum(logs) / len(logs)  # more than half of the values are equal
    return math.sqrt(math.fsum((value - mean) ** 2 for value in logs) / (len(logs) - 1))


def _detectable(by_spread: float, interval: Interval | None, confidence: float) -> float | None:
    """Returns the detectable difference from the standard error of the estimate: by the spread, or by the
    interval (of logarithms) if that is wider, because most runs agree and some are far off."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    by_interval = 0.0 if interval is None else (interval.high - interval.low) / 2 / z
    standard_error = max(by_spread / math.sqrt(_RANK_EFFICIENCY), by_interval)
    if standard_error <= 0:
        return None
    return math.exp((z + NormalDist().inv_cdf(_POWER)) * standard_error) - 1


def _interval_of(ordered: Sequence[float], cut: tuple[int, float] | None) -> Interval | None:
    if cut is None or not ordered:
        return None
    k, confidence = cut
    return Interval(ordered[k], ordered[len(ordered) - 1 - k], confidence)


def _exponential(logs: Interval | None) -> Interval | None:
    return None if logs is None else Interval(math.exp(logs.low), math.exp(logs.high), logs.confidence)


FORMAT = 1
COMMANDS, TOOL = "commands", "tool"  # kinds of documents
# Compared numbers and their display names.
NUMBERS = {
    "duration_seconds": "wall time",
    "cpu_seconds": "CPU time",
    "memory_peak_mb": "peak memory",
    "io_read_mb": "read",
    "io_write_mb": "written",
}
_LEAST_COMPARED = {"io_read_mb": 1.0, "io_write_mb": 1.0}  # MiB; below, a ratio is meaningless

Document = dict[str, Any]


def run_form(record: Record, run_number: int) -> Document:
    """Formats one measured run. The caller adds `round` and `detailed_profile`."""
    outcome, attempt = record.outcome, record.attempt
    usage = outcome.usage if outcome else Usage()
    return {
        "run_number": run_number,
        "status": record.status.value,
        "success": record.status is Status.SUCCESS,
        "returncode": returncode_of(outcome) if outcome else None,
        "error": outcome.error if outcome else None,
        "start_time": format_instant(attempt.started_at_us if attempt else record.job.created_at_us),
        "duration_seconds": outcome.duration_s if outcome else None,
        "cpu_seconds": None if usage.cpu_total_usec is None else usage.cpu_total_usec / 1e6,
        "memory_peak_mb": in_mb(usage.memory_peak_bytes),
        "io_read_mb": in_mb(usage.io_read_bytes),
        "io_write_mb": in_mb(usage.io_write_bytes),
        "resource_usage": usage_form(usage),
        "job_uuid": record.job.uuid,
        "job_number": record.number,
    }


def metrics_form(runs: Sequence[Mapping[str, Any]], confidence: float = CONFIDENCE) -> Document:
    """Returns metrics with fixed keys; null if no successful run has the number. Durations in seconds, memory
    in MiB, `avg_cpu` in percent of one CPU."""
    good = [run for run in runs if run["success"]]
    times = _known(good, "duration_seconds")
    cpu, memory = _known(good, "cpu_seconds"), _known(good, "memory_peak_mb")
    uses = [
        100 * run["cpu_seconds"] / run["duration_seconds"]
        for run in good
        if run["cpu_seconds"] is not None and run["duration_seconds"]
    ]
    interval = median_interval(times, confidence) if times else None
    return {
        "runs": len(runs),
        "successful_runs": len(good),
        "success_rate": round(100 * len(good) / len(runs), 2) if runs else 0.0,
        "avg_duration": _mean(times),
        "median_duration": median(times) if times else None,
        "min_duration": min(times, default=None),
        "max_duration": max(times, default=None),
        "std_duration": stdev(times) if len(times) > 1 else (0.0 if times else None),
        "median_duration_low": interval.low if interval else None,
        "median_duration_high": interval.high if interval else None,
        "confidence": interval.confidence if interval else None,
        "avg_cpu": _mean(uses),
        "avg_cpu_seconds": _mean(cpu),
        "avg_memory": _mean(memory),
        "max_memory": max(memory, default=None),
        "avg_io_read_mb": _mean(_known(good, "io_read_mb")),
        "avg_io_write_mb": _mean(_known(good, "io_write_mb")),
        "outliers": [good[index]["run_number"] for index in outliers(times)],
    }


def medians(runs: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    good = [run for run in runs if run["success"]]
    return {name: median(known) if (known := _known(good, name)) else None for name in NUMBERS}


def comparison_form(
    variant: Mapping[str, Any],
    baseline: Mapping[str, Any],
    *,
    are_rounds: bool,
    confidence: float = CONFIDENCE,
) -> Document:
    """Compares two variants (`name`, `runs`). `are_rounds`: runs with the same `round` form a pair."""
    numbers: Document = {}
    for name in NUMBERS:
        ratio = _ratio(variant["runs"], baseline["runs"], name, are_rounds=are_rounds, confidence=confidence)
        numbers[name] = None if ratio is None else ratio_form(ratio)
    return {"variant": variant["name"], "baseline": baseline["name"], "numbers": numbers}


def ratio_form(ratio: Ratio) -> Document:
    interval = ratio.interval
    return {
        "ratio": ratio.value,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "confidence": interval.confidence if interval else None,
        "differs": ratio.differs,
        "detectable": ratio.detectable,
        "pairs": ratio.pairs,
        "method": ratio.method,
    }


def half_width_of(number: Mapping[str, Any] | None) -> float | None:
    """Returns half the relative width of the interval of a ratio form; None without an interval."""
    if number is None or number["low"] is None:
        return None
    return math.sqrt(number["high"] / number["low"]) - 1


def variants_of(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns the variants of a stored document of either kind: `name`, `command` and `runs`."""
    if document["kind"] == COMMANDS:
        return list(document["variants"])
    return [
        {
            "name": f"{document['tool']} on {document['device']}",
            "command": document["command"],
            "runs": document["runs"],
            "metrics": document["metrics"],
        }
    ]


def parameters_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """Returns script, container and parameters, which may differ between results of one tool."""
    if document["kind"] == COMMANDS:
        return {}
    about = {name: document.get(name) for name in ("script", "container")}
    return {**{name: value for name, value in about.items() if value}, **(document.get("params") or {})}


def parameter_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Document:
    """Returns name -> [before, after], None if absent. Only for results of the same tool."""
    if before["kind"] == COMMANDS or after["kind"] == COMMANDS or before["tool"] != after["tool"]:
        return {}
    one, two = parameters_of(before), parameters_of(after)
    return {name: [one.get(name), two.get(name)] for name in {**one, **two} if one.get(name) != two.get(name)}


def are_of_one_machine(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    return bool(before["system_info"].get("hostname") == after["system_info"].get("hostname"))


def compared_documents(before: Mapping[str, Any], after: Mapping[str, Any]) -> Document:
    """Compares the last variants: in a comparison of commands, that is the one tried against the baseline."""
    one, two = variants_of(before)[-1], variants_of(after)[-1]
    names = (one["name"], two["name"])
    if names[0] == names[1]:
        names = (f"{names[0]} (before)", f"{names[1]} (after)")
    return comparison_form(
        {"name": names[1], "runs": two["runs"]}, {"name": names[0], "runs": one["runs"]}, are_rounds=False
    )


def _ratio(
    runs: Sequence[Mapping[str, Any]],
    baseline: Sequence[Mapping[str, Any]],
    name: str,
    *,
    are_rounds: bool,
    confidence: float,
) -> Ratio | None:
    least = _LEAST_COMPARED.get(name, 0.0)
    if are_rounds:
        before = {run["round"]: run[name] for run in baseline if run["success"]}
        pairs = [
            (run[name], before[run["round"]]) for run in runs if run["success"] and run["round"] in before
        ]
        ours, theirs = [ours for ours, _ in pairs], [theirs for _, theirs in pairs]
    else:
        ours = [run[name] for run in runs if run["success"]]
        theirs = [run[name] for run in baseline if run["success"]]
    if not ours or not theirs or not all(value is not None and value > least for value in (*ours, *theirs)):
        return None
    compare = ratio_of if are_rounds else unpaired_ratio
    return compare(ours, theirs, confidence)


def _known(runs: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [run[name] for run in runs if run[name] is not None]


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
