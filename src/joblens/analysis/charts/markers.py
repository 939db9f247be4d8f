"""Markers in the charts of a job: start, findings, notes and end, with their times."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from msgspec import Struct

from joblens.model.history import Annotation
from joblens.model.jobs.job import Code, Record
from joblens.model.jobs.sample import SampleSeries

Values = Sequence[int | None]


class Marker(Struct, frozen=True, kw_only=True):
    """`at_us` None: concerns the whole job, not an instant."""

    at_us: int | None
    kind: str  # event, finding, note
    code: str
    severity: str = "info"
    text: str


def _first_growth(values: Values) -> int | None:
    for index, (before, now) in enumerate(pairwise(values), 1):
        if now is not None and now > (before or 0):
            return index
    return 0 if values and values[0] else None


def _largest_growth(values: Values) -> int | None:
    steps = [
        (now - before, index)
        for index, (before, now) in enumerate(pairwise(values), 1)
        if now is not None and before is not None and now > before
    ]
    return max(steps)[1] if steps else None


def _first_above_zero(values: Values) -> int | None:
    return next((index for index, value in enumerate(values) if value), None)


def _highest(values: Values) -> int | None:
    known = [(value, -index) for index, value in enumerate(values) if value is not None]
    return -max(known)[1] if known else None


_AT_END = frozenset(
    {
        Code.EXIT_CODE,
        Code.SIGNAL,
        Code.TIMED_OUT,
        Code.CANCELLED,
        Code.STOPPED_BY_SYSTEMD,
        Code.LOST,
        Code.LEFTOVERS,
    }
)
_INSTANTS: dict[str, tuple[str, Callable[[Values], int | None]]] = {
    Code.OUT_OF_MEMORY: ("oom_kills", _first_growth),
    Code.CHILD_OUT_OF_MEMORY: ("oom_kills", _first_growth),
    Code.PIDS_LIMIT: ("pids_limit_events", _first_growth),
    Code.CPU_THROTTLED: ("cpu_throttled_usec", _first_growth),
    Code.SWAPPED: ("memory_swap_bytes", _first_above_zero),
    Code.MAJOR_FAULTS: ("faults_major", _largest_growth),
    Code.CPU_PRESSURE: ("cpu_some_usec", _largest_growth),
    Code.MEMORY_PRESSURE: ("memory_some_usec", _largest_growth),
    Code.IO_PRESSURE: ("io_some_usec", _largest_growth),
    Code.MEMORY_NEAR_LIMIT: ("memory_anon_bytes", _highest),
    Code.LEAK_SUSPECTED: ("memory_anon_bytes", _highest),
}


def markers_of(record: Record, series: SampleSeries, notes: Sequence[Annotation]) -> tuple[Marker, ...]:
    """Returns events, findings and notes by time; those without a time last."""
    attempt, outcome = record.attempt, record.outcome
    if attempt is None:
        return ()
    began_us = attempt.started_at_us
    found = [Marker(at_us=began_us, kind="event", code="started", text="started")]
    end_us: int | None = None
    if outcome is not None:
        end_us = began_us + round(outcome.duration_s * 1_000_000)
        ended = f"ended: {outcome.status.value}" + (f" ({outcome.reason})" if outcome.reason else "")
        severity = "problem" if outcome.status.is_failure else "info"
        found.append(Marker(at_us=end_us, kind="event", code="ended", severity=severity, text=ended))
        for finding in outcome.findings:
            at_us = _when(finding.code, series, began_us, end_us)
            found.append(
                Marker(
                    at_us=at_us,
                    kind="finding",
                    code=finding.code,
                    severity=finding.severity.value,
                    text=finding.text,
                )
            )
    else:
        killed = _first_growth(series.columns.get("oom_kills", ()))
        if killed is not None:
            at_us = began_us + (series.columns["elapsed_us"][killed] or 0)
            text = "a process was killed: out of memory"
            found.append(Marker(at_us=at_us, kind="event", code="oom-kill", severity="problem", text=text))
    found += [Marker(at_us=each.at_us, kind="note", code="note", text=each.text) for each in notes]
    return tuple(sorted(found, key=lambda each: (each.at_us is None, each.at_us or 0)))


def _when(code: str, series: SampleSeries, began_us: int, end_us: int) -> int | None:
    if code in _AT_END:
        return end_us
    if code not in _INSTANTS:
        return None
    column, choose = _INSTANTS[code]
    index = choose(series.columns.get(column, ()))
    if index is None:
        return end_us if code == Code.OUT_OF_MEMORY else None
    return began_us + (series.columns["elapsed_us"][index] or 0)
