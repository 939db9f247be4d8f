"""Failed jobs of a run with their causes, and how recovery handles each."""

from collections.abc import Iterable, Sequence

from joblens.analysis.findings.failure_causes import Cause
from joblens.engine.life.recovery_plan import JobRecovery
from joblens.model.values.units import counted, format_bytes, format_duration, listed
from joblens.views.text.numbers import UNKNOWN
from joblens.views.text.style import Palette, clean, wrap
from joblens.views.text.table import Column, render_table

_COLUMNS = (
    Column("Job ID", is_right=True, goes=2),
    Column("Job Name", gives_way=True, keeps_end=True, least=12),
    Column("Return Code", is_right=True, goes=1),
    Column("Cause"),
    Column("Limit", is_right=True),
    Column("Reached", is_right=True),
    Column("Next", is_right=True),
    Column("Reason", gives_way=True, least=20),
)
_NAMES_SHOWN = 5
_NO_EDGE = 1 << 20


def render_failures(jobs: Sequence[JobRecovery], *, width: int | None, paint: Palette) -> list[str]:
    """Formats failed jobs. `width`: of the terminal; None in a pipe."""
    rows = [_row(one) for one in jobs]
    return render_table(_COLUMNS, rows, _NO_EDGE if width is None else width, paint)


def _row(one: JobRecovery) -> list[str]:
    failure, diagnosis = one.failure, one.failure.diagnosis
    limit = reached = ""
    if diagnosis.cause is Cause.OUT_OF_MEMORY:
        limit, reached = format_bytes(diagnosis.memory_limit_bytes), format_bytes(diagnosis.memory_peak_bytes)
    elif diagnosis.cause is Cause.TIMEOUT:
        limit, reached = format_duration(diagnosis.time_limit_s), format_duration(diagnosis.duration_s)
    reason = f"{diagnosis.evidence} (a guess)" if diagnosis.is_guess else diagnosis.evidence
    return [
        UNKNOWN if failure.job_id is None else str(failure.job_id),
        clean(failure.name),
        UNKNOWN if diagnosis.exit_code is None else str(diagnosis.exit_code),
        diagnosis.cause.value,
        limit,
        reached,
        _next(one),
        clean(f"{reason}; {one.note}" if one.note else reason),
    ]


def _next(one: JobRecovery) -> str:
    if not one.is_retried:
        return "skipped"
    if one.memory_bytes is not None:
        return format_bytes(one.memory_bytes)
    return "same" if one.timeout_s is None else format_duration(one.timeout_s)


def render_plan(jobs: Sequence[JobRecovery], to_run: Sequence[str], *, width: int) -> list[str]:
    """Returns one line per kind of change, and the jobs that will run."""
    lines: list[str] = []
    for text, names in _changes(jobs).items():
        lines += wrap(f"{text} for {counted(len(names), 'job')}: {_names(names)}", width, "  ")
    skipped = [one.failure.name for one in jobs if not one.is_retried]
    if skipped:
        lines += wrap(f"Skipped: {_names(skipped)}", width, "  ")
    if to_run:
        lines += wrap(f"To run: {counted(len(to_run), 'job')}: {_names(to_run)}", width, "  ")
    return lines


def _changes(jobs: Sequence[JobRecovery]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in jobs:
        before = one.failure.diagnosis
        if not one.is_retried:
            continue
        if one.memory_bytes is not None:
            text = f"Memory: {format_bytes(before.memory_limit_bytes)} -> {format_bytes(one.memory_bytes)}"
        elif one.timeout_s is not None:
            text = f"Runtime: {format_duration(before.time_limit_s)} -> {format_duration(one.timeout_s)}"
        else:
            text = "Same request"
        found.setdefault(text, []).append(one.failure.name)
    return found


def _names(names: Iterable[str]) -> str:
    return listed(list(names), _NAMES_SHOWN, clean)
