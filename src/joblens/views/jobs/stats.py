"""Totals and spreads of many jobs."""

from collections.abc import Callable

from joblens.model.history import Distribution, GroupStatistics, Statistics
from joblens.model.values.units import format_duration
from joblens.views.jobs.history import exact_seconds
from joblens.views.text.numbers import UNKNOWN, compact_bytes, counted
from joblens.views.text.style import Palette, clean
from joblens.views.text.table import Column, render_table

_SPREAD_TITLES = ("total", "mean", "p50", "p90", "p99", "max")
_GOES = {"p99": 1, "mean": 2, "p90": 3, "total": 4, "p50": 5}  # what a narrow terminal does without
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
    rows[-1][1] = UNKNOWN  # peaks of different jobs do not add up to anything
    lines += render_table(columns, rows, width, paint)
    if statistics.by_tool:
        lines += ["", *render_table(_TOOL_COLUMNS, _tool_rows(statistics), width, paint)]
    return lines


def _headline(overall: GroupStatistics, paint: Palette) -> str:
    counts = sorted(overall.by_status.items(), key=lambda item: -item[1])
    states = ", ".join(f"{number:,} {status}" for status, number in counts)
    head = paint.paint(counted(overall.jobs, "ended job"), "bold")
    return f"{head}: {states} ({overall.success_percent:.1f}% success)"


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
        head = [clean(tool) or "(none)", f"{group.jobs:,}", f"{group.success_percent:.1f}%"]
        for name, spread, show in _measures(group):
            rows.append([*head, name, *_spread(spread, show)[1:]])
            head = ["", "", ""]
    return rows


def render_job_stats(statistics: Statistics) -> list[str]:
    """The text of `job-stats`."""
    overall = statistics.overall
    rate = round(overall.success_percent, 2)
    lines = [
        "Job Statistics Summary:",
        "",
        "Overall:",
        f"  Total Jobs: {overall.jobs}",
        f"  Successful: {overall.successful} ({rate}%)",
        f"  Failed: {overall.unsuccessful}",
        f"  Success Rate: {rate}%",
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
            f"    Successful: {group.successful} ({round(group.success_percent, 2)}%)",
            f"    Failed: {group.unsuccessful}",
            f"    Total Duration: {exact_seconds(group.duration_s.total)}",
        ]
    return lines
