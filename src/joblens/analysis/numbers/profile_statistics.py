"""Many profiles together: how every number of them is spread."""

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from joblens.model.errors import InputError
from joblens.model.jobs.job import Record, Status

Path = tuple[str, ...]
_SAMPLES_OF_NO_CURVE = 2  # at the start and at the end
SPREAD = ("n", "mean", "min", "max", "stdev", "median")


def aggregate_profiles(profiles: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns a profile's structure with {n, mean, min, max, stdev, median} for each number.

    `n`: profiles that have the number; the standard deviation is the sample's, null for a single value.
    Numeric strings (container_stats) count; lists do not. `profiles`: their number.
    """
    values: dict[Path, list[float]] = {}
    count = 0
    for profile in profiles:
        if not isinstance(profile, Mapping):
            raise InputError(f"item {count} is not a profile, but {type(profile).__name__}")
        count += 1
        for path, value in _numbers_in(profile):
            known = values.setdefault(
                path, []
            )  # in the order of a profile, also where the first knows it not
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
    """`never_ran`, `lost`, `too_short`, or `none_kept`: it was made elsewhere, or came without one."""
    outcome = record.outcome
    if outcome is None or record.status is Status.LOST:
        return "lost"
    if record.attempt is None or (record.status is Status.ERROR and not outcome.samples):
        return "never_ran"
    return "too_short" if 0 < outcome.samples <= _SAMPLES_OF_NO_CURVE else "none_kept"


def numbers_of(part: Mapping[str, Any]) -> Iterator[tuple[Path, float]]:
    """Every number, with the keys that lead to it."""
    for path, number in _numbers_in(part):
        if number is not None:
            yield path, number


def _numbers_in(part: Mapping[str, Any], above: Path = ()) -> Iterator[tuple[Path, float | None]]:
    """Where there is a number, or could be one."""
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
    """The spreads of an aggregate, with the keys that lead to them."""
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
