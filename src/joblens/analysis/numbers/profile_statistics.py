"""Profile statistics: the spread of each number over many profiles."""

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from joblens.model.errors import InputError
from joblens.model.jobs.job import Record, Status

Path = tuple[str, ...]
_START_AND_END = 2  # samples
SPREAD = ("n", "mean", "min", "max", "stdev", "median")


def aggregate_profiles(profiles: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns a profile's structure with {n, mean, min, max, stdev, median} for each number. `n`: profiles
    with the number; `stdev`: of a sample, null for a single value. Numeric strings (container_stats) count;
    lists do not. `profiles`: their number."""
    values: dict[Path, list[float]] = {}
    count = 0
    for profile in profiles:
        if not isinstance(profile, Mapping):
            raise InputError(f"item {count} is not a profile, but {type(profile).__name__}")
        count += 1
        for path, value in _numbers_in(profile):
            # keeps the order of a profile, also for numbers that are unknown in the first one
            known = values.setdefault(path, [])
            if value is not None:
                known.append(value)
    result: dict[str, Any] = {"profiles": count}
    for path, known in values.items():
        if not known:
            continue
        node = result
        for key in path[:-1]:
            node = node.setdefault(key, {})
        node[path[-1]] = spread_of(known)
    return result


def why_without_profile(record: Record) -> str:
    """Returns `never_ran`, `lost`, `too_short`, or `none_kept` (imported or measured without a profile)."""
    outcome = record.outcome
    if outcome is None or record.status is Status.LOST:
        return "lost"
    if record.attempt is None or (record.status is Status.ERROR and not outcome.samples):
        return "never_ran"
    return "too_short" if 0 < outcome.samples <= _START_AND_END else "none_kept"


def numbers_of(part: Mapping[str, Any]) -> Iterator[tuple[Path, float]]:
    """Yields every number with its path of keys."""
    for path, number in _numbers_in(part):
        if number is not None:
            yield path, number


def _numbers_in(part: Mapping[str, Any], above: Path = ()) -> Iterator[tuple[Path, float | None]]:
    """Yields every leaf with its path of keys; None if it is not a number."""
    for key, value in part.items():
        path = (*above, str(key))
        if isinstance(value, Mapping):
            yield from _numbers_in(value, path)
        else:
            yield path, _number(value)


def spread_of(known: list[float]) -> dict[str, float | int | None]:
    return {
        "n": len(known),
        "mean": _rounded(statistics.fmean(known)),
        "min": _rounded(min(known)),
        "max": _rounded(max(known)),
        "stdev": _rounded(statistics.stdev(known)) if len(known) > 1 else None,
        "median": _rounded(statistics.median(known)),
    }


def spreads_in(result: Mapping[str, Any], above: Path = ()) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yields the spreads of an aggregate with their paths of keys."""
    for key, value in result.items():
        if not isinstance(value, Mapping):
            continue
        if tuple(value) == SPREAD:
            yield (*above, key), value
        else:
            yield from spreads_in(value, (*above, key))


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def _rounded(value: float) -> float:
    return round(value, 6)
