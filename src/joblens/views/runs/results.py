"""Results of a run: table of jobs, summary, and the final message."""

import math
import shlex
from collections.abc import Iterable, Sequence

from joblens.analysis.runs.status import FailedAction, FailedJob, RunEnding, run_label
from joblens.analysis.runs.table import ResultRow, RunSummary
from joblens.model.runs.run import JobState, RunStatus
from joblens.model.values.units import (
    UNITS_NOTE,
    format_bytes,
    format_duration,
    format_instant,
    in_gb,
    listed,
    more,
)
from joblens.views.text.numbers import UNKNOWN, mark_bound
from joblens.views.text.style import PLAIN, Palette, clean, pad, wrap_beside
from joblens.views.text.table import Column, columns_that_fit, render_table

STATE_COLOURS = {
    JobState.UNINITIALIZED: "dim",
    JobState.BLOCKED: "dim",
    JobState.READY: "blue",
    JobState.PENDING: "blue",
    JobState.RUNNING: "cyan",
    JobState.COMPLETED: "green",
    JobState.FAILED: "red",
    JobState.CANCELED: "magenta",
    JobState.TERMINATED: "yellow",
    JobState.DISABLED: "dim",
    JobState.PENDING_FAILED: "red",
}
_COLUMNS = (
    Column("Job ID", is_right=True, goes=11),
    Column("Job Name", gives_way=True, keeps_end=True, least=12),
    Column("Label", gives_way=True, least=6, goes=9),
    Column("Status"),
    Column("Return Code", is_right=True, goes=4),
    Column("Duration", is_right=True, goes=7),
    Column("Peak CPU %", is_right=True, goes=5),
    Column("Avg CPU %", is_right=True, goes=2),
    Column("Peak Mem (GB)", is_right=True, goes=8),
    Column("Avg Mem (GB)", is_right=True, goes=1),
    Column("Attempts", is_right=True, goes=3),
    Column("Where", gives_way=True, least=12, goes=6),
    Column("Reason", gives_way=True, least=20, goes=10),
)
_OPTIONAL = ("Where", "Reason", "Label")  # shown if a job has a value
_MOST_REASONS = 10
_MOST_NAMES = 3


def render_results(rows: Sequence[ResultRow], *, width: int | None, paint: Palette) -> list[str]:
    """Formats results. `width`: of the terminal; None in a pipe, which gets all columns in full."""
    cells = [_cells(row, paint) for row in rows]
    indexes = [
        index
        for index, column in enumerate(_COLUMNS)
        if column.title not in _OPTIONAL or any(row[index] for row in cells)
    ]
    if width is None:
        return render_table(_COLUMNS, cells, 1_000_000, paint, indexes=indexes)
    indexes = columns_that_fit(_COLUMNS, indexes, cells, width)
    table = render_table(_COLUMNS, cells, width, paint, indexes=indexes)
    note = ["", UNITS_NOTE] if any("GB" in _COLUMNS[index].title for index in indexes) else []
    return [*table, *_whole_reasons(rows, table[1:], width), *note]


def _whole_reasons(rows: Sequence[ResultRow], lines: Sequence[str], width: int) -> list[str]:
    """Returns truncated reasons in full: their end may be the advice."""
    jobs_of: dict[str, list[str]] = {}
    for row, line in zip(rows, lines, strict=True):
        reason = clean(_reason(row))
        if reason and not line.endswith(reason):
            jobs_of.setdefault(reason, []).append(clean(row.name))
    lines_found: list[str] = []
    for why, names in list(jobs_of.items())[:_MOST_REASONS]:
        lines_found += wrap_beside("", f"{listed(names, _MOST_NAMES)}: {why}", width, "  ")
    if len(jobs_of) > _MOST_REASONS:
        lines_found.append(f"{more(len(jobs_of) - _MOST_REASONS, 'reason')}: --json has them all")
    return ["", *lines_found] if lines_found else []


def _reason(row: ResultRow) -> str:
    return "; ".join(text for text in (row.why, row.raised) if text)


def _cells(row: ResultRow, paint: Palette) -> list[str]:
    return [
        UNKNOWN if row.job_id is None else str(row.job_id),
        clean(row.name),
        clean(row.label),
        paint.paint(row.state.label, STATE_COLOURS[row.state]),
        UNKNOWN if row.return_code is None else str(row.return_code),
        format_duration(row.duration_s),
        _percent(row.peak_cpu_percent),
        _percent(row.avg_cpu_percent),
        mark_bound(_gigabytes(row.peak_memory_bytes), is_lower_bound=row.peak_memory_is_least),
        _gigabytes(row.avg_memory_bytes),
        str(row.attempts),
        clean(row.where.describe()),
        clean(_reason(row)),
    ]


def _percent(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1f}"


def _gigabytes(count: int | None) -> str:
    """Formats GiB, below one with three significant digits for small jobs."""
    size = in_gb(count)
    if not size:
        return UNKNOWN if size is None else "0"
    return f"{size:.2f}" if size >= 1 else f"{size:.{2 - math.floor(math.log10(size))}f}"


_STYLES = {RunStatus.COMPLETED: "green", RunStatus.FAILED: "red", RunStatus.STOPPED: "yellow"}


def render_ending(ending: RunEnding, *, width: int, paint: Palette = PLAIN) -> list[str]:
    status = paint.paint(str(ending.status), _STYLES.get(ending.status, "bold"))
    counts = ", ".join(f"{count:,} {state.label}" for state, count in ending.counts.items())
    took = format_duration(ending.wall_s)
    lines = [f"Run {ending.label} of {clean(ending.name)} {status} in {took}: {counts}"]
    for alike in _alike(ending.failures):
        lines += _failure(alike, width)
    if ending.more_failures:
        lines.append(f"  {more(ending.more_failures)}")
    lines += render_actions(ending.actions, width=width)
    lines += render_failed_datasets(ending.datasets, width=width)
    return [*lines, *_hints(ending)]


def render_actions(actions: Iterable[FailedAction], *, width: int) -> list[str]:
    """Lists failed commands of actions, each with its output folder."""
    lines = []
    for action in actions:
        command = f": {clean(action.command)}" if action.command else ""
        lines += _hanging(f"{clean(action.name)} failed ({clean(action.why)}){command}", width)
        if action.logs_dir:
            lines.append(f"    {clean(action.logs_dir)}")
    return lines


def render_failed_datasets(datasets: Iterable[tuple[str, str]], *, width: int) -> list[str]:
    """Lists datasets that could not be finalized, with reasons. `datasets`: (name, reason)."""
    lines = []
    for name, error in datasets:
        lines += _hanging(f"dataset {clean(name)} could not be finalized: {clean(error)}", width)
    return lines


def _hanging(text: str, width: int) -> list[str]:
    return wrap_beside("  ", text, max(40, width), "    ")


def _alike(failures: Iterable[FailedJob]) -> list[list[FailedJob]]:
    """Groups jobs that failed to start for the same reason."""
    found: dict[tuple[object, ...], list[FailedJob]] = {}
    for index, one in enumerate(failures):
        is_alone = bool(one.logs_dir) or not one.why
        found.setdefault((one.state, one.why, index if is_alone else -1), []).append(one)
    return list(found.values())


def _failure(alike: list[FailedJob], width: int) -> list[str]:
    failure = alike[0]
    why = f": {clean(failure.why)}" if failure.why else ""
    names = ", ".join(clean(one.name) for one in alike)
    lines = _hanging(f"{names} {failure.state.label}{why}", width)  # in full: it may end with advice
    if failure.logs_dir:
        command = "" if failure.number is None else f"joblens logs {failure.number} · "
        lines.append(f"    {command}{clean(failure.logs_dir)}")
    return lines


def _hints(ending: RunEnding) -> list[str]:
    label = ending.label
    hints = [f"joblens results {label}", f"joblens check {label}"]
    has_only_datasets = bool(ending.datasets) and not ending.failures  # a rerun would not finalize them
    if ending.status is RunStatus.STOPPED or has_only_datasets:
        hints.insert(0, f"joblens resume {label}")
    elif ending.status is RunStatus.FAILED and ending.has_too_small:
        hints.insert(0, f"joblens recover {label}")
    elif ending.status is RunStatus.FAILED:
        hints.insert(0, f"joblens rerun {label} --failed")
    return [*_rightsize_hint(ending), "  " + " · ".join(hints)]


def _needs_larger_request(ending: RunEnding) -> bool:
    """Returns whether a rerun with the same file would run out of memory or time again."""
    return ending.status is RunStatus.FAILED and ending.has_too_small and bool(ending.file)


def _rightsize_hint(ending: RunEnding) -> list[str]:
    if not _needs_larger_request(ending):
        return []
    file = shlex.quote(clean(ending.file))
    return [f"  joblens rightsize {ending.label} --write, then joblens run {file} --rerun-changed"]


_LABEL = 12
_FAILED_SHOWN = 10


def render_summary(found: RunSummary) -> list[str]:
    run = found.run
    counts = ", ".join(f"{count:,} {state.label}" for state, count in found.counts.items())
    pairs = [
        ("workflow", f"{run.workflow_number}  {clean(found.workflow.name)}"),
        ("run", f"{run_label(run)}  {run.status.value}"),
        ("started", "" if run.started_at_us is None else format_instant(run.started_at_us)),
        ("ended", "" if run.ended_at_us is None else format_instant(run.ended_at_us)),
        ("took", "" if found.wall_s is None else format_duration(found.wall_s)),
        ("jobs", f"{sum(found.counts.values()):,}: {counts}"),
        ("attempts", f"{found.attempts:,}, {format_duration(found.jobs_s)} in total"),
        ("CPU time", "" if found.cpu_s is None else format_duration(found.cpu_s)),
    ]
    if found.longest is not None:
        pairs.append(("longest", f"{clean(found.longest.name)}, {format_duration(found.longest.duration_s)}"))
    if found.largest is not None:
        peak = format_bytes(found.largest.peak_memory_bytes)
        pairs.append(("largest", f"{clean(found.largest.name)}, {peak} of memory"))
    pairs += [
        (row.state.label, f"{clean(row.name)}{f': {clean(row.why)}' if row.why else ''}")
        for row in found.failed[:_FAILED_SHOWN]
    ]
    lines = [f"{pad(name, _LABEL)} {value}" for name, value in pairs if value]
    if len(found.failed) > _FAILED_SHOWN:
        lines.append(f"{more(len(found.failed) - _FAILED_SHOWN)}: joblens results {run_label(run)} --failed")
    return lines
