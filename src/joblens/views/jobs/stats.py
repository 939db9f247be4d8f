"""Statistics of many jobs: totals, spreads, and the spread of their profiles."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from joblens.analysis.numbers.profile_statistics import Path, spreads_in
from joblens.model.history import Distribution, GroupStatistics, Statistics
from joblens.model.values.units import counted, format_duration
from joblens.views.jobs.history import exact_seconds
from joblens.views.text.numbers import UNKNOWN, compact_bytes
from joblens.views.text.style import Palette, clean, visible_width
from joblens.views.text.table import Column, render_table

_SPREAD_TITLES = ("total", "mean", "p50", "p90", "p99", "max")
_GOES = {"p99": 1, "mean": 2, "p90": 3, "total": 4, "p50": 5}  # omitted on a narrow terminal
_SPREAD_COLUMNS = tuple(
    Column(title.upper(), is_right=True, goes=_GOES.get(title, 0)) for title in _SPREAD_TITLES
)
_TOOL_COLUMNS = (
    Column("TOOL", gives_way=True),
    Column("JOBS", is_right=True),
    Column("SUCCESS", is_right=True, goes=4),
    Column(""),
    *_SPREAD_COLUMNS[1:],
)

Show = Callable[[float | None], str]


def render_stats(statistics: Statistics, *, width: int, paint: Palette) -> list[str]:
    overall = statistics.overall
    lines = [_headline(overall, paint), ""]
    columns = (Column(""), *_SPREAD_COLUMNS)
    rows = [[name, *_spread(spread, show)] for name, spread, show in _measures(overall)]
    rows[-1][1] = UNKNOWN  # a sum of peaks is meaningless
    lines += render_table(columns, rows, width, paint)
    if statistics.by_tool:
        lines += ["", *render_table(_TOOL_COLUMNS, _tool_rows(statistics), width, paint)]
    return lines


def _headline(overall: GroupStatistics, paint: Palette) -> str:
    counts = sorted(overall.by_status.items(), key=lambda item: -item[1])
    states = ", ".join(f"{number:,} {status}" for status, number in counts)
    head = paint.paint(counted(overall.jobs, "ended job"), "bold")
    success = f" ({overall.success_percent:.1f}% success)" if overall.judged else ""
    return f"{head}: {states}{success}"


def _measures(group: GroupStatistics) -> list[tuple[str, Distribution, Show]]:
    return [
        ("duration", group.duration_s, format_duration),
        ("CPU time", group.cpu_s, format_duration),
        ("memory peak", group.memory_peak_bytes, compact_bytes),
    ]


def _spread(spread: Distribution, show: Show) -> list[str]:
    numbers = (spread.mean, spread.p50, spread.p90, spread.p99, spread.max)
    return [show(spread.total) if spread.count else UNKNOWN, *(show(number) for number in numbers)]


def _tool_rows(statistics: Statistics) -> list[list[str]]:
    rows = []
    for tool, group in sorted(statistics.by_tool.items(), key=lambda item: (-item[1].jobs, item[0])):
        head = [clean(tool) or "(none)", f"{group.jobs:,}", _success(group, f"{group.success_percent:.1f}%")]
        for name, spread, show in _measures(group):
            rows.append([*head, name, *_spread(spread, show)[1:]])
            head = ["", "", ""]
    return rows


def _success(group: GroupStatistics, percent: str) -> str:
    return percent if group.judged else UNKNOWN


def render_job_stats(statistics: Statistics) -> list[str]:
    """Returns the text of `job-stats`."""
    overall = statistics.overall
    rate = _success(overall, f"{round(overall.success_percent, 2)}%")
    lines = [
        "Job Statistics Summary:",
        "",
        "Overall:",
        f"  Total Jobs: {overall.jobs}",
        f"  Successful: {overall.successful} ({rate})",
        f"  Failed: {overall.unsuccessful}",
        f"  Success Rate: {rate}",
        "",
        "Resource Usage:",
        f"  Total CPU Time: {exact_seconds(overall.cpu_s.total)}",
        f"  Total Duration: {exact_seconds(overall.duration_s.total)}",
        f"  Average Duration: {exact_seconds(overall.duration_s.mean or 0.0)}",
        "",
        "By Tool:",
    ]
    for tool, group in sorted(statistics.by_tool.items()):
        lines += [
            f"  {clean(tool) or '(none)'}:",
            f"    Jobs: {group.jobs}",
            f"    Successful: {group.successful} ({_success(group, f'{round(group.success_percent, 2)}%')})",
            f"    Failed: {group.unsuccessful}",
            f"    Total Duration: {exact_seconds(group.duration_s.total)}",
        ]
    return lines


_COLUMNS = (
    Column("NUMBER"),
    Column("JOBS", is_right=True, goes=2),
    Column("MEAN", is_right=True),
    Column("STDEV", is_right=True, goes=1),
    Column("MIN", is_right=True, goes=4),
    Column("MEDIAN", is_right=True, goes=3),
    Column("MAX", is_right=True),
)
_ORDER = ("n", "mean", "stdev", "min", "median", "max")
_REASONS = {
    "too_short": "too short for a sample",
    "never_ran": "not started",
    "lost": "lost",
    "none_kept": "imported or measured without a profile",
}
_ENDLESS = 1 << 20


def render_profile_statistics(
    statistics: Mapping[str, Any], *, width: int | None, paint: Palette
) -> list[str]:
    """Formats statistics. `width`: of a terminal, with the numbers of a section below its name. None: for
    programs, one line per number with its full name."""
    spreads = [(path, [_shown(spread[name]) for name in _ORDER]) for path, spread in spreads_in(statistics)]
    if width is None:
        columns = list(_COLUMNS)
        rows = [[clean(".".join(path)), *shown] for path, shown in spreads]
    else:
        columns, rows = _fitting(_by_section(spreads, paint), width)
    return [*_head(statistics, paint), "", *render_table(columns, rows, _ENDLESS, paint)]


def _head(statistics: Mapping[str, Any], paint: Palette) -> list[str]:
    """Returns the number of profiles, and why some jobs have none."""
    profiles, without = statistics["profiles"], statistics.get("without_profile") or {}
    head = counted(profiles, "profile")
    if not without:
        return [paint.paint(head, "bold")]
    jobs = counted(profiles + sum(without.values()), "job")
    reasons = "; ".join(f"{without[name]:,} {words}" for name, words in _REASONS.items() if name in without)
    return [paint.paint(f"{head} of {jobs}", "bold"), f"Without a profile: {reasons}."]


def _by_section(spreads: Sequence[tuple[Path, list[str]]], paint: Palette) -> list[list[str]]:
    rows: list[list[str]] = []
    section = ""
    for path, shown in spreads:
        if len(path) == 1:
            rows.append([clean(path[0]), *shown])
            continue
        if path[0] != section:
            section = path[0]
            rows.append([paint.paint(clean(section), "bold"), *[""] * len(_ORDER)])
        rows.append([f"  {clean('.'.join(path[1:]))}", *shown])
    return rows


def _fitting(rows: list[list[str]], width: int) -> tuple[list[Column], list[list[str]]]:
    """Omits columns instead of cutting names, which would become ambiguous."""
    fitting = list(range(len(_COLUMNS)))
    titled = [[column.title for column in _COLUMNS], *rows]
    widths = [max(visible_width(row[at]) for row in titled) for at in fitting]
    for index in sorted((at for at in fitting if _COLUMNS[at].goes), key=lambda at: _COLUMNS[at].goes):
        if sum(widths[at] + 2 for at in fitting) - 2 > width:
            fitting.remove(index)
    return [_COLUMNS[at] for at in fitting], [[row[at] for at in fitting] for row in rows]


def _shown(value: float | None) -> str:
    """Formats up to six digits, never with an exponent: 2048.5, 0.0123."""
    if value is None:
        return UNKNOWN
    if isinstance(value, int) or value == int(value):
        return f"{int(value):,}"
    if abs(value) >= 1000:
        return f"{value:,.1f}"
    return f"{value:.3f}".rstrip("0").rstrip(".") if abs(value) >= 0.001 else f"{value:.6f}"
