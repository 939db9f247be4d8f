"""Memory that grows and grows."""

from collections.abc import Iterator, Sequence

from joblens.analysis.finding_codes import Code
from joblens.analysis.memory_growth import MemoryGrowth, memory_growth
from joblens.model.finding import Finding, Severity
from joblens.model.job import Record
from joblens.model.sample import Sample
from joblens.model.units import format_bytes, format_duration


def growth_findings(record: Record, samples: Sequence[Sample]) -> Iterator[Finding]:
    growth = memory_growth(samples)
    if growth is None or not growth.keeps_rising:
        return
    text = (
        "its memory never stopped growing: the least it held rose from "
        f"{format_bytes(growth.first_bytes)} to {format_bytes(growth.last_bytes)}, "
        f"by {format_bytes(growth.bytes_per_hour)} an hour"
    )
    advice = "if it is not meant to, it leaks: let go of what it has dealt with, or restart it now and then"
    yield Finding(Code.LEAK_SUSPECTED, Severity.WARNING, text + _until_limit(record, samples, growth), advice)


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
    if left_s is None:
        return ""
    if left_s > 30 * 86400:
        return ""
    return f"; at that rate it would reach {what} after another {format_duration(left_s)}"
