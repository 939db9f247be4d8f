"""How the numbers of many profiles are spread, as a table."""

from collections.abc import Mapping, Sequence
from typing import Any

from joblens.analysis.numbers.profile_statistics import Path, spreads_in
from joblens.views.text.numbers import UNKNOWN, counted
from joblens.views.text.style import Palette, clean, visible_width
from joblens.views.text.table import Column, render_table

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
    "too_short": "too short, no sample fell between start and end",
    "never_ran": "never ran",
    "lost": "lost",
    "none_kept": "imported, or measured, without one",
}
_ENDLESS = 1 << 20


def render_profile_statistics(told: Mapping[str, Any], *, width: int | None, paint: Palette) -> list[str]:
    """`width` of a terminal, where the numbers of a section stand below its name; None for what is read by
    programs: a line a number with its whole name, however long."""
    spreads = [(path, [_shown(spread[name]) for name in _ORDER]) for path, spread in spreads_in(told)]
    if width is None:
        columns = list(_COLUMNS)
        rows = [[clean(".".join(path)), *shown] for path, shown in spreads]
    else:
        columns, rows = _fitting(_by_section(spreads, paint), width)
    return [*_head(told, paint), "", *render_table(columns, rows, _ENDLESS, paint)]


def _head(told: Mapping[str, Any], paint: Palette) -> list[str]:
    """How many there are, and why some jobs have none."""
    profiles, without = told["profiles"], told.get("without_profile") or {}
    head = counted(profiles, "profile")
    if not without:
        return [paint.paint(head, "bold")]
    jobs = counted(profiles + sum(without.values()), "job")
    reasons = "; ".join(f"{without[name]:,} {words}" for name, words in _REASONS.items() if name in without)
    return [paint.paint(f"{head} of {jobs}", "bold"), f"Without one: {reasons}."]


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
    """Names are never cut, as they would look alike: columns go instead."""
    kept = list(range(len(_COLUMNS)))
    titled = [[column.title for column in _COLUMNS], *rows]
    widths = [max(visible_width(row[at]) for row in titled) for at in kept]
    for place in sorted((at for at in kept if _COLUMNS[at].goes), key=lambda at: _COLUMNS[at].goes):
        if sum(widths[at] + 2 for at in kept) - 2 > width:
            kept.remove(place)
    return [_COLUMNS[at] for at in kept], [[row[at] for at in kept] for row in rows]


def _shown(value: float | None) -> str:
    """Six digits at the most: 2048.5, 0.0123, 1.5e+09 never."""
    if value is None:
        return UNKNOWN
    if isinstance(value, int) or value == int(value):
        return f"{int(value):,}"
    if abs(value) >= 1000:
        return f"{value:,.1f}"
    return f"{value:.3f}".rstrip("0").rstrip(".") if abs(value) >= 0.001 else f"{value:.6f}"
