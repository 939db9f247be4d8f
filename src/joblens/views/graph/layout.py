"""Where boxes and arrows go: stages from left to right, boxes of a stage ordered so that few arrows cross.

An arrow over several stages gets a waypoint in each of them, so that it runs between the boxes."""

from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

_SWEEPS = 12
BOX_HEIGHT = 34.0
_ROW_GAP = 14.0
_WAYPOINT_HEIGHT = 4.0
_COLUMN_GAP = 72.0
MARGIN = 24.0


class PlacedBox(Struct, frozen=True):
    x: float
    y: float  # of its middle
    width: float


class Layout(Struct, frozen=True):
    """`routes`: for each arrow the points it goes through, ends included."""

    boxes: tuple[PlacedBox, ...]
    routes: tuple[tuple[tuple[float, float], ...], ...]
    width: float
    height: float


def lay_out(stages: Sequence[int], widths: Sequence[float], arrows: Sequence[tuple[int, int]]) -> Layout:
    """`stages` and `widths` of each box; arrows lead to later stages."""
    grid = _Grid(stages, arrows)
    grid.order()
    middles = grid.middles()
    columns = _columns(stages, widths)
    boxes = tuple(
        PlacedBox(columns[stage][0], middles[place], width)
        for place, (stage, width) in enumerate(zip(stages, widths, strict=True))
    )
    routes = tuple(
        _route(boxes[source], boxes[target], [(grid.stage[one], middles[one]) for one in way], columns)
        for (source, target), way in zip(arrows, grid.waypoints, strict=True)
    )
    bottom = max((box.y for box in boxes), default=0.0) + BOX_HEIGHT / 2
    bottom = max([bottom, *(y for route in routes for _, y in route)])
    right = max((box.x + box.width for box in boxes), default=0.0)
    return Layout(boxes, routes, right + MARGIN, bottom + MARGIN)


def _columns(stages: Sequence[int], widths: Sequence[float]) -> list[tuple[float, float]]:
    """Left edge and width of each stage."""
    widest = [0.0] * (max(stages, default=-1) + 1)
    for stage, width in zip(stages, widths, strict=True):
        widest[stage] = max(widest[stage], width)
    columns, x = [], MARGIN
    for width in widest:
        columns.append((x, width))
        x += width + _COLUMN_GAP
    return columns


def _route(
    source: PlacedBox,
    target: PlacedBox,
    way: list[tuple[int, float]],
    columns: list[tuple[float, float]],
) -> tuple[tuple[float, float], ...]:
    points = [(source.x + source.width, source.y)]
    for stage, y in way:
        x, width = columns[stage]
        points += [(x, y), (x + width, y)]
    return (*points, (target.x, target.y))


class _Grid:
    """Boxes and waypoints in columns."""

    def __init__(self, stages: Sequence[int], arrows: Sequence[tuple[int, int]]) -> None:
        self.stage = list(stages)
        self.waypoints: list[list[int]] = []
        self._boxes = len(stages)
        links: list[tuple[int, int]] = []
        for source, target in arrows:
            way = list(range(len(self.stage), len(self.stage) + stages[target] - stages[source] - 1))
            self.stage += range(stages[source] + 1, stages[target])
            self.waypoints.append(way)
            chain = [source, *way, target]
            links += pairwise(chain)
        self._before: list[list[int]] = [[] for _ in self.stage]
        self._after: list[list[int]] = [[] for _ in self.stage]
        for one, other in links:
            self._before[other].append(one)
            self._after[one].append(other)
        self._columns: list[list[int]] = [[] for _ in range(max(self.stage, default=-1) + 1)]
        for place, stage in enumerate(self.stage):
            self._columns[stage].append(place)

    def order(self) -> None:
        """Each column by the mean place of its neighbours, there and back a few times."""
        rank = [0.0] * len(self.stage)
        for column in self._columns:
            self._number(column, rank)
        for sweep in range(_SWEEPS):
            forward = sweep % 2 == 0
            neighbours = self._before if forward else self._after
            for column in self._columns if forward else self._columns[::-1]:
                means = {
                    place: sum(rank[one] for one in neighbours[place]) / len(neighbours[place])
                    if neighbours[place]
                    else rank[place]
                    for place in column
                }
                column.sort(key=means.__getitem__)
                self._number(column, rank)

    @staticmethod
    def _number(column: list[int], rank: list[float]) -> None:
        # relative to the column's length, so that columns of different lengths compare
        for at, place in enumerate(column):
            rank[place] = (at + 0.5) / len(column)

    def middles(self) -> list[float]:
        """Heights: near the neighbours, never closer than the boxes are high."""
        y = [0.0] * len(self.stage)
        for column in self._columns:
            below = 0.0
            for place in column:
                y[place] = below + self._height(place) / 2
                below += self._height(place) + _ROW_GAP
        for sweep in range(_SWEEPS):
            forward = sweep % 2 == 0
            neighbours = self._before if forward else self._after
            for column in self._columns if forward else self._columns[::-1]:
                wanted = [
                    sum(y[one] for one in neighbours[place]) / len(neighbours[place])
                    if neighbours[place]
                    else y[place]
                    for place in column
                ]
                for place, height in zip(column, self._apart(column, wanted), strict=True):
                    y[place] = height
        top = min((y[place] - self._height(place) / 2 for place in range(len(y))), default=0.0)
        return [height - top + MARGIN for height in y]

    def _apart(self, column: list[int], wanted: list[float]) -> list[float]:
        """Pushed down where too close, pushed up where too close, and the mean of both, which keeps the
        distances and stays near what was wanted."""
        gaps = [(self._height(one) + self._height(other)) / 2 + _ROW_GAP for one, other in pairwise(column)]
        down, up = list(wanted), list(wanted)
        for at, gap in enumerate(gaps):
            down[at + 1] = max(down[at + 1], down[at] + gap)
        for at in range(len(gaps) - 1, -1, -1):
            up[at] = min(up[at], up[at + 1] - gaps[at])
        return [(one + other) / 2 for one, other in zip(down, up, strict=True)]

    def _height(self, place: int) -> float:
        return BOX_HEIGHT if place < self._boxes else _WAYPOINT_HEIGHT
