"""Memory that grows and grows."""

from collections.abc import Iterator, Sequence

from joblens.analysis.findings.codes import Code
from joblens.analysis.numbers.memory_growth import MemoryGrowth, memory_growth, rise_until_killed
from joblens.model.jobs.finding import Finding, Severity
from joblens.model.jobs.job import Record
from joblens.model.jobs.sample import Sample
from joblens.model.values.units import format_bytes, format_duration

_FAR_OFF_S = 30 * 86400
_ADVICE = "if it is not meant to, it leaks: let go of what it has dealt with, or restart it now and then"


def growth_findings(record: Record, samples: Sequence[Sample]) -> Iterator[Finding]:
    growth = memory_growth(samples)
    text = ""
    if growth is not None and growth.keeps_rising:
        text = (
            "its memory never stopped growing: the least it held rose from "
            f"{format_bytes(growth.first_bytes)} to {format_bytes(growth.last_bytes)}, "
            f"by {format_bytes(growth.bytes_per_hour)} an hour"
        )
        text += ", until it ran out" if _ran_out(record) else _until_limit(record, samples, growth)
    elif _ran_out(record):
        text = _rise(record, samples)
    if text:
        yield Finding(Code.LEAK_SUSPECTED, Severity.WARNING, text, _ADVICE)


def _ran_out(record: Record) -> bool:
    return record.outcome is not None and record.outcome.reason == "out-of-memory"


def _rise(record: Record, samples: Sequence[Sample]) -> str:
    """Of a job that was killed for memory too soon for a trend."""
    outcome = record.outcome
    if outcome is None or outcome.usage.memory_peak_bytes is None:
        return ""
    rise = rise_until_killed(samples, outcome.duration_s, outcome.usage.memory_peak_bytes)
    if rise is None:
        return ""
    return (
        f"its memory grew evenly from {format_bytes(rise.first_bytes)} to {format_bytes(rise.last_bytes)}, "
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
        limit, what = total, f"all memory of the machine ({format_bytes(total)})"
    left_s = None if limit is None else growth.seconds_until(limit)
    if left_s is None or left_s > _FAR_OFF_S or _was_killed(record):
        return ""
    return f"; at that rate it would reach {what} after another {format_duration(left_s)}"


def _was_killed(record: Record) -> bool:
    """There is no "another" for it."""
    return record.outcome is not None and record.outcome.signal is not None
