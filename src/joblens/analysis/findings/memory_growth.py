"""Memory growth: detects memory that keeps growing, and reports it.
Needed memory rises and falls; leaked memory is never freed. So growth is measured on the floor of the curve:
the minimum in each of several equal parts of the job's time. The rate is the median of the slopes between all
points of the floor (Theil-Sen), which single steps and dips do not change.
"""

import itertools
from collections.abc import Iterator, Sequence

from msgspec import Struct

from joblens.analysis.numbers.rates import unreclaimable_bytes
from joblens.model.jobs.job import Code, Finding, Record, Severity
from joblens.model.jobs.sample import Sample
from joblens.model.values.units import MIB, format_bytes, format_duration

_PARTS = 16
_FIRST_PARTS = 2  # ignored: programs and data are loaded
LEAST_SAMPLES = 20  # minimum for a result
_LEAST_SECONDS = 60.0
# Thresholds: growth must continue through most of the time, also towards the end, and be large, absolutely
# and relative to the start.
_RISING_STEPS = 0.75
_LATE_SHARE = 0.3  # of the rise, in the second half
_LEAST_BYTES = 32 * MIB
_LEAST_SHARE = 0.2
_NOISE = 0.01  # of the rise: a step below that is level
# A rise until the job is killed: tolerance for the rate between two samples, and their minimum distance.
_EVEN = 3.0
_LEAST_STEP = 0.1  # of the time


class MemoryGrowth(Struct, frozen=True, kw_only=True):
    """The floor after the first eighth of the time and at the end, and its course in between."""

    first_bytes: int
    last_bytes: int
    span_s: float
    bytes_per_hour: float
    rising_share: float  # of the steps from one part to the next
    late_share: float  # of the rise, in the second half
    after_s: float = 0.0  # from the last point of the floor to the last sample

    @property
    def keeps_rising(self) -> bool:
        grown = self.last_bytes - self.first_bytes
        return (
            self.rising_share >= _RISING_STEPS
            and self.late_share >= _LATE_SHARE
            and min(grown, self.bytes_per_hour * self.span_s / 3600)
            >= max(_LEAST_BYTES, _LEAST_SHARE * self.first_bytes)
        )

    def seconds_until(self, limit_bytes: int) -> float | None:
        """Returns the time from the last sample until the limit is reached at this rate; None: never."""
        if self.bytes_per_hour <= 0:
            return None
        return max(0.0, (limit_bytes - self.last_bytes) / self.bytes_per_hour * 3600 - self.after_s)


def memory_growth(samples: Sequence[Sample]) -> MemoryGrowth | None:
    """Returns None if the job was too short, or has too few samples."""
    # The first sample precedes the program, the last follows its end.
    sizes = [
        (sample.elapsed_us / 1e6, size)
        for sample in samples[1:-1]
        if (size := unreclaimable_bytes(sample)) is not None
    ]
    if len(sizes) < LEAST_SAMPLES or sizes[-1][0] - sizes[0][0] < _LEAST_SECONDS:
        return None
    floor = _floor(sizes)[_FIRST_PARTS:]
    if len(floor) < _PARTS // 2:
        return None
    slopes = sorted(
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for earlier, later in itertools.combinations(floor, 2)
    )
    first, middle, last = floor[0][1], floor[len(floor) // 2][1], floor[-1][1]
    grown = last - first
    level = max(0.0, _NOISE * grown)
    steps = [later[1] - earlier[1] > level for earlier, later in itertools.pairwise(floor)]
    return MemoryGrowth(
        first_bytes=first,
        last_bytes=last,
        span_s=floor[-1][0] - floor[0][0],
        bytes_per_hour=slopes[len(slopes) // 2] * 3600,
        rising_share=sum(steps) / len(steps),
        late_share=(last - middle) / grown if grown > 0 else 0.0,
        after_s=sizes[-1][0] - floor[-1][0],
    )


class SteadyRise(Struct, frozen=True, kw_only=True):
    """Growth of a job that ran out of memory before a trend was measurable."""

    first_bytes: int
    last_bytes: int
    bytes_per_second: float


def rise_until_killed(samples: Sequence[Sample], killed_s: float, peak_bytes: int) -> SteadyRise | None:
    """Returns the growth from the start to the out-of-memory kill at its peak. None: no steady growth, or no
    samples in between. A large allocation is not a leak; neither is loading data before working."""
    points = [
        (sample.elapsed_us / 1e6, size)
        for sample in samples[:-1]
        if (size := unreclaimable_bytes(sample)) is not None
    ]
    if len(points) > 2 and points[-1][1] < points[-2][1]:
        points.pop()  # sampled while it was being killed
    least_step_s = killed_s * _LEAST_STEP
    spaced = points[:1]
    for point in points[1:]:
        if point[0] - spaced[-1][0] >= least_step_s and killed_s - point[0] >= least_step_s:
            spaced.append(point)
    if len(spaced) < 2:
        return None
    spaced.append((killed_s, peak_bytes))
    grown = peak_bytes - spaced[0][1]
    slope = grown / (killed_s - spaced[0][0])
    slopes = [
        (later[1] - earlier[1]) / (later[0] - earlier[0]) for earlier, later in itertools.pairwise(spaced)
    ]
    if grown < _LEAST_BYTES or not all(slope / _EVEN <= one <= slope * _EVEN for one in slopes):
        return None
    return SteadyRise(first_bytes=spaced[0][1], last_bytes=peak_bytes, bytes_per_second=slope)


def _floor(sizes: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """Returns (time, minimum) of each part that has samples."""
    begin_s, width_s = sizes[0][0], (sizes[-1][0] - sizes[0][0]) / _PARTS
    parts = itertools.groupby(sizes, lambda size: min(_PARTS - 1, int((size[0] - begin_s) / width_s)))
    return [min(inside, key=lambda size: size[1]) for _, inside in parts]


_FAR_OFF_S = 30 * 86400
_ADVICE = "unless intended, this is a leak: release what is no longer needed, or restart it regularly"


def growth_findings(record: Record, samples: Sequence[Sample]) -> Iterator[Finding]:
    growth = memory_growth(samples)
    text = ""
    if growth is not None and growth.keeps_rising:
        text = (
            "its memory kept growing: the minimum rose from "
            f"{format_bytes(growth.first_bytes)} to {format_bytes(growth.last_bytes)}, "
            f"by {format_bytes(growth.bytes_per_hour)} per hour"
        )
        text += ", until it ran out" if _ran_out(record) else _until_limit(record, samples, growth)
    elif _ran_out(record):
        text = _rise(record, samples)
    if text:
        yield Finding(Code.LEAK_SUSPECTED, Severity.WARNING, text, _ADVICE)


def _ran_out(record: Record) -> bool:
    return record.outcome is not None and record.outcome.reason == "out-of-memory"


def _rise(record: Record, samples: Sequence[Sample]) -> str:
    """Describes the growth of a job that ran out of memory before a trend was measurable."""
    outcome = record.outcome
    if outcome is None or outcome.usage.memory_peak_bytes is None:
        return ""
    rise = rise_until_killed(samples, outcome.duration_s, outcome.usage.memory_peak_bytes)
    if rise is None:
        return ""
    return (
        f"its memory grew steadily from {format_bytes(rise.first_bytes)} to {format_bytes(rise.last_bytes)}, "
        f"by {format_bytes(rise.bytes_per_second)}/s, until it ran out"
    )


def _until_limit(record: Record, samples: Sequence[Sample], growth: MemoryGrowth) -> str:
    limit = next(
        (sample.memory_limit_bytes for sample in reversed(samples) if sample.memory_limit_bytes is not None),
        record.job.requirements.memory_bytes,
    )
    total = None if record.attempt is None else record.attempt.memory_total_bytes
    what = f"its limit of {format_bytes(limit)}"
    if limit is None or (total is not None and limit > total):
        limit, what = total, f"the machine's memory ({format_bytes(total)})"
    left_s = None if limit is None else growth.seconds_until(limit)
    if left_s is None or left_s > _FAR_OFF_S or _was_killed(record):
        return ""
    return f"; at that rate it would reach {what} in another {format_duration(left_s)}"


def _was_killed(record: Record) -> bool:
    """Returns whether the job was killed, so that a forecast is pointless."""
    return record.outcome is not None and record.outcome.signal is not None
