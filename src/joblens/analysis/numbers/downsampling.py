"""Downsampling: minimum, maximum and last value of each bucket of time.
A day of one-second samples takes milliseconds, because whole slices are computed in C."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from operator import sub

from msgspec import Struct

Values = Sequence[int | float | None]


class Buckets(Struct, frozen=True):
    """Values of one field; None in all three lists for buckets in which it is unknown."""

    min: list[int | float | None]
    max: list[int | float | None]
    last: list[int | float | None]


class Series(Struct, frozen=True, kw_only=True):
    """Non-empty buckets of equal width. `at_us`: the last sample of each."""

    job_uuid: str
    from_us: int
    to_us: int
    samples: int  # in all buckets
    at_us: list[int]
    fields: dict[str, Buckets]


def bucket_bounds(times_us: Sequence[int], from_us: int, to_us: int, points: int) -> list[tuple[int, int]]:
    """Returns slices of samples (first, last + 1) of the non-empty buckets. `times_us` ascends; `to_us` is
    exclusive."""
    width = max(1, -(-(to_us - from_us) // points))
    edges = [bisect_left(times_us, from_us + width * number) for number in range(points)]
    edges.append(bisect_left(times_us, to_us))
    return [(first, behind) for first, behind in pairwise(edges) if first < behind]


def downsampled(values: Values, bounds: Sequence[tuple[int, int]]) -> Buckets:
    if None in values:
        return _with_gaps(values, bounds)
    slices = [values[first:behind] for first, behind in bounds]
    known: list[list[int | float]] = slices  # type: ignore[assignment]  # no gap anywhere
    return Buckets(list(map(min, known)), list(map(max, known)), [part[-1] for part in known])


def _with_gaps(values: Values, bounds: Sequence[tuple[int, int]]) -> Buckets:
    buckets = Buckets([], [], [])
    for first, behind in bounds:
        known = [value for value in values[first:behind] if value is not None]
        buckets.min.append(min(known, default=None))
        buckets.max.append(max(known, default=None))
        buckets.last.append(known[-1] if known else None)
    return buckets


def rates(times_us: Sequence[int], values: Values) -> list[float | None]:
    """Returns the change of a counter per second, at the end of each interval. None at the first sample, and
    where the counter is unknown or fell, because it belongs to another attempt."""
    if not values:
        return []
    if None in values:
        return [None, *_rates_with_gaps(times_us, values)]
    spans = map(sub, times_us[1:], times_us)
    steps = map(sub, values[1:], values)  # no gap anywhere
    return [
        None,
        *(
            step * 1_000_000 / span if step >= 0 and span > 0 else None
            for step, span in zip(steps, spans, strict=True)
        ),
    ]


def _rates_with_gaps(times_us: Sequence[int], values: Values) -> list[float | None]:
    """Returns rates; after a gap, since the last known value."""
    found: list[float | None] = []
    known_us, known = times_us[0], values[0]
    for at_us, value in zip(times_us[1:], values[1:], strict=True):
        is_step = value is not None and known is not None and value >= known and at_us > known_us
        found.append((value - known) * 1_000_000 / (at_us - known_us) if is_step else None)  # type: ignore[operator]
        if value is not None:
            known_us, known = at_us, value
    return found
