"""Series of a job's samples, downsampled for charts of servers and dashboards."""

import difflib
from collections.abc import Sequence

from joblens.analysis.numbers.downsampling import Series, bucket_bounds, downsampled, rates
from joblens.model.errors import InputError
from joblens.model.jobs.job import Record
from joblens.model.jobs.sample import SAMPLE_COLUMNS
from joblens.ports.store import Store

PER_SECOND = "/s"  # behind the name of a counter: its rate
DEFAULT_FIELDS = ("cpu_total_usec/s", "memory_current_bytes", "processes")
MOST_POINTS = 20_000
_FAR_US = 1 << 62


def series(
    store: Store,
    record: Record,
    fields: Sequence[str],
    *,
    from_us: int | None = None,
    to_us: int | None = None,
    points: int = 1000,
) -> Series:
    """Returns at most `points` buckets from `from_us` (default: the first sample) to before `to_us` (default:
    the end). A field is a column of samples (docs/metrics.md), with `/s` behind it its rate. Each bucket has
    the least and the largest value, so peaks are preserved."""
    names = _columns(fields)
    _check(from_us, to_us, points)
    found = store.series(
        record.job.uuid, names, 0 if from_us is None else from_us, _FAR_US if to_us is None else to_us
    )
    times = found.at_us
    start = from_us if from_us is not None else times[0] if times else 0
    end = to_us if to_us is not None else times[-1] + 1 if times else start
    bounds = bucket_bounds(times, start, end, points) if end > start else []
    columns = {
        field: downsampled(
            rates(times, found.columns[name]) if field.endswith(PER_SECOND) else found.columns[name], bounds
        )
        for field, name in zip(fields, names, strict=True)
    }
    return Series(
        job_uuid=record.job.uuid,
        from_us=start,
        to_us=end,
        samples=sum(behind - first for first, behind in bounds),
        at_us=[times[behind - 1] for _, behind in bounds],
        fields=columns,
    )


def _columns(fields: Sequence[str]) -> list[str]:
    if not fields:
        raise InputError("fields: name at least one", hint="cpu_total_usec/s, memory_current_bytes, …")
    names = [field.removesuffix(PER_SECOND) for field in fields]
    check_columns(names)
    return names


def check_columns(names: Sequence[str]) -> None:
    """Raises InputError for a name that samples do not have."""
    for name in names:
        if name not in SAMPLE_COLUMNS:
            close = difflib.get_close_matches(name, SAMPLE_COLUMNS, 1)
            guess = f"did you mean {close[0]}? " if close else ""
            raise InputError(f"fields: unknown field '{name}'", hint=f"{guess}docs/metrics.md lists them")


def _check(from_us: int | None, to_us: int | None, points: int) -> None:
    if not 1 <= points <= MOST_POINTS:
        raise InputError(f"points: {points} is not between 1 and {MOST_POINTS}")
    if from_us is not None and to_us is not None and from_us >= to_us:
        raise InputError("from: must be before to")
