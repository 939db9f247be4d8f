"""How many of all equally likely arrangements have a rank sum of at most so much: the exact distributions
behind Wilcoxon's tests, and from them how far in from both ends a confidence interval may reach."""

import functools
import math
from statistics import NormalDist

_EXACT_PAIRS = 80  # beyond, the normal approximation is right to four digits
_EXACT_RUNS = 40


def signed_rank_cut(pairs: int, alpha: float) -> tuple[int, float] | None:
    """-> (k, confidence): the k-th smallest and k-th largest (from 0) of all means of two of the values are
    the ends. None: too few for that confidence."""
    total = pairs * (pairs + 1) // 2
    if pairs > _EXACT_PAIRS:
        spread = math.sqrt(total * (2 * pairs + 1) / 12)
        return _approximate_cut(total, spread, alpha)
    return _exact_cut(_signed_rank_counts(pairs), alpha)


def rank_sum_cut(first: int, second: int, alpha: float) -> tuple[int, float] | None:
    """The same for all differences between a value of the one and a value of the other."""
    total = first * second
    if max(first, second) > _EXACT_RUNS:
        spread = math.sqrt(total * (first + second + 1) / 12)
        return _approximate_cut(total, spread, alpha)
    return _exact_cut(_rank_sum_counts(first, second), alpha)


def median_cut(count: int, alpha: float) -> tuple[int, float] | None:
    """The same for the values themselves and their median."""
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
    """Of the ways to choose some of 1…n, how many have each sum."""
    counts = [1]
    for rank in range(1, pairs + 1):
        longer = counts + [0] * rank
        for place, count in enumerate(counts):
            longer[place + rank] += count
        counts = longer
    return tuple(counts)


@functools.lru_cache(maxsize=128)
def _rank_sum_counts(first: int, second: int) -> tuple[int, ...]:
    """Coefficients of the Gaussian binomial: of the ways to mix both, how many have so many inversions."""
    size = first * second + 1
    counts = [1] + [0] * (size - 1)
    for step in range(1, first + 1):
        for place in range(size - 1, second + step - 1, -1):  # times 1 - x^(second + step)
            counts[place] -= counts[place - second - step]
        for place in range(step, size):  # divided by 1 - x^step
            counts[place] += counts[place - step]
    return tuple(counts)
