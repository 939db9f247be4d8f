"""Curves of one panel, and where its axes end."""

from collections.abc import Sequence

from joblens.views.plots.chart import Line
from joblens.views.plots.scales import round_axis


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
