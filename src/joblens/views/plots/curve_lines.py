"""Curves of one panel, and where its axes end."""

from collections.abc import Sequence

from msgspec import structs

from joblens.views.plots.chart import Line
from joblens.views.plots.scales import round_axis

_AS_GOOD_AS_THE_START = 0.34  # of the first interval


def reach(
    lines: Sequence[Line], axis: int, room: float, least_step: float = 0.0
) -> tuple[float, float] | tuple[None, None]:
    """Where an axis ends. One with a line that comes when it is asked for has to grow with it."""
    own = [line for line in lines if line.axis == axis]
    known = [y for line in own for y in line.y if y is not None]
    if not known or not all(line.is_shown for line in own):
        return None, None
    return round_axis(max(known), room, least_step)


def line_of(
    name: str,
    x: Sequence[float],
    y: Sequence[float | None],
    color: str,
    *,
    axis: int = 0,
    decimals: int = 1,
    unit: str = "",
) -> Line:
    """Without the points that have no number: two neighbours that have one are joined."""
    known = [(at, round(value, 4)) for at, value in zip(x, y, strict=True) if value is not None]
    return Line(
        name=name,
        x=[at for at, _ in known],
        y=[value for _, value in known],
        color=color,
        axis=axis,
        decimals=decimals,
        unit=unit,
    )


def rate_line_of(
    name: str,
    x: Sequence[float],
    y: Sequence[float | None],
    color: str,
    *,
    decimals: int = 1,
    unit: str = "",
    start: float = 0.0,
) -> Line:
    """Each number holds for the time since the point before, so the first one begins there too: at the
    job's start where its first sample is as good as that."""
    line = line_of(name, x, y, color, decimals=decimals, unit=unit)
    first = next((place for place, value in enumerate(y) if value is not None), 0)
    if first:
        begin = x[first - 1]
        if begin - start <= (x[first] - begin) * _AS_GOOD_AS_THE_START:
            begin = start
        line = structs.replace(line, x=[begin, *line.x], y=[line.y[0], *line.y])
    return structs.replace(line, is_rate=True)
