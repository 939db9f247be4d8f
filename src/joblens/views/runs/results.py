"""The jobs of a run with how each one stands and what it used."""

import math
from collections.abc import Mapping, Sequence

from joblens.analysis.runs.table import ResultRow
from joblens.model.runs.run import JobState
from joblens.model.values.units import UNITS_NOTE, format_duration, in_gb
from joblens.views.text.numbers import UNKNOWN, mark_bound
from joblens.views.text.style import Palette, clean, visible_width, wrap
from joblens.views.text.table import Column, render_table

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
    Column("Job ID", is_right=True),
    Column("Job Name", gives_way=True, keeps_end=True, least=12),
    Column("Label", gives_way=True, least=6),
    Column("Status"),
    Column("Return Code", is_right=True),
    Column("Duration", is_right=True),
    Column("Peak CPU %", is_right=True),
    Column("Avg CPU %", is_right=True),
    Column("Peak Mem (GB)", is_right=True),
    Column("Avg Mem (GB)", is_right=True),
    Column("Attempts", is_right=True),
    Column("Where", gives_way=True, least=12),
    Column("Reason", gives_way=True, least=20),
)
# Left out one after the other where a terminal has not the room.
_LEAST_WANTED = (
    *("Avg Mem (GB)", "Avg CPU %", "Attempts", "Return Code", "Peak CPU %", "Where"),
    *("Duration", "Peak Mem (GB)", "Label", "Reason", "Job ID"),
)
_REASONS_TOLD = 10
_NAMES_TOLD = 3
_GAP = 2


def render_results(rows: Sequence[ResultRow], *, width: int | None, paint: Palette) -> list[str]:
    """`width`: of the terminal; None in a pipe, whose readers count on every column, whole."""
    cells = [_cells(row, paint) for row in rows]
    columns = _columns_for(width, cells)
    lines = [[row[column.title] for column in columns] for row in cells]
    if width is None:
        return render_table(columns, lines, 1_000_000, paint)
    table = render_table(columns, lines, width, paint)
    note = ["", UNITS_NOTE] if any("GB" in column.title for column in columns) else []
    return [*table, *_whole_reasons(rows, table[1:], width), *note]


def _whole_reasons(rows: Sequence[ResultRow], lines: Sequence[str], width: int) -> list[str]:
    """Below the table, what it has no room for: the end of a reason may be what to do."""
    jobs_of: dict[str, list[str]] = {}
    for row, line in zip(rows, lines, strict=True):
        reason = clean(_reason(row))
        if reason and not line.endswith(reason):
            jobs_of.setdefault(reason, []).append(clean(row.name))
    told: list[str] = []
    for why, names in list(jobs_of.items())[:_REASONS_TOLD]:
        more = f" and {len(names) - _NAMES_TOLD:,} more" if len(names) > _NAMES_TOLD else ""
        first, *rest = wrap(f"{', '.join(names[:_NAMES_TOLD])}{more}: {why}", width, "  ")
        told += [first[2:], *rest]
    if len(jobs_of) > _REASONS_TOLD:
        told.append(f"… and {len(jobs_of) - _REASONS_TOLD:,} more reasons: --json has them all")
    return ["", *told] if told else []


def _columns_for(width: int | None, cells: Sequence[Mapping[str, str]]) -> list[Column]:
    """A column without anything in it is left out too, except what everyone looks for."""
    empty = {title for title in ("Where", "Reason", "Label") if not any(row[title] for row in cells)}
    columns = [column for column in _COLUMNS if column.title not in empty]
    if width is None:
        return columns
    needs = {
        column.title: min(column.least, longest) if column.gives_way else longest
        for column in columns
        for longest in [
            max([visible_width(column.title), *(visible_width(row[column.title]) for row in cells)])
        ]
    }
    for title in (title for title in _LEAST_WANTED if title in needs):
        if sum(needs[column.title] + _GAP for column in columns) - _GAP <= width:
            break
        columns = [column for column in columns if column.title != title]
    return columns


def _reason(row: ResultRow) -> str:
    return "; ".join(text for text in (row.why, row.raised) if text)


def _cells(row: ResultRow, paint: Palette) -> dict[str, str]:
    return {
        "Job ID": UNKNOWN if row.job_id is None else str(row.job_id),
        "Job Name": clean(row.name),
        "Label": clean(row.label),
        "Status": paint.paint(row.state.label, STATE_COLOURS[row.state]),
        "Return Code": UNKNOWN if row.return_code is None else str(row.return_code),
        "Duration": format_duration(row.duration_s),
        "Peak CPU %": _percent(row.peak_cpu_percent),
        "Avg CPU %": _percent(row.avg_cpu_percent),
        "Peak Mem (GB)": mark_bound(
            _gigabytes(row.peak_memory_bytes), is_lower_bound=row.peak_memory_is_least
        ),
        "Avg Mem (GB)": _gigabytes(row.avg_memory_bytes),
        "Attempts": str(row.attempts),
        "Where": clean(row.where.describe()),
        "Reason": clean(_reason(row)),
    }


def _percent(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1f}"


def _gigabytes(count: int | None) -> str:
    """Below one with three significant digits: small jobs use something too."""
    size = in_gb(count)
    if not size:
        return UNKNOWN if size is None else "0"
    return f"{size:.2f}" if size >= 1 else f"{size:.{2 - math.floor(math.log10(size))}f}"
