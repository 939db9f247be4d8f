"""How the numbers of many profiles are spread, as a table."""

from collections.abc import Mapping
from typing import Any

from joblens.analysis.profile_statistics import spreads_in
from joblens.views.numbers import UNKNOWN, counted
from joblens.views.style import Palette, clean
from joblens.views.table import Column, render_table

_COLUMNS = (
    Column("NUMBER", gives_way=True, least=16, keeps_end=True),
    Column("JOBS", is_right=True, goes=2),
    Column("MEAN", is_right=True),
    Column("STDEV", is_right=True, goes=1),
    Column("MIN", is_right=True, goes=4),
    Column("MEDIAN", is_right=True, goes=3),
    Column("MAX", is_right=True),
)
_ORDER = ("n", "mean", "stdev", "min", "median", "max")


def render_profile_statistics(told: Mapping[str, Any], *, width: int, paint: Palette) -> list[str]:
    rows = [
        [clean(".".join(path)), *(_shown(spread[name]) for name in _ORDER)]
        for path, spread in spreads_in(told)
    ]
    head = paint.paint(counted(told["profiles"], "profile"), "bold")
    return [head, "", *render_table(_COLUMNS, rows, width, paint)]


def _shown(value: float | None) -> str:
    """Six digits at the most: 2048.5, 0.0123, 1.5e+09 never."""
    if value is None:
        return UNKNOWN
    if isinstance(value, int) or value == int(value):
        return f"{int(value):,}"
    if abs(value) >= 1000:
        return f"{value:,.1f}"
    return f"{value:.3f}".rstrip("0").rstrip(".") if abs(value) >= 0.001 else f"{value:.6f}"
