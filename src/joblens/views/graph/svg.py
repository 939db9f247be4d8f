"""Workflow graph as one SVG file: layout in stages with few crossings, and drawing.

An arrow over several stages gets a waypoint in each of them, so that it runs between the boxes.
"""

from collections.abc import Sequence
from html import escape
from itertools import pairwise

from msgspec import Struct

from joblens.model.runs.run import JobState
from joblens.model.values.units import counted
from joblens.views.graph.text import STATE_COLOURS, Box, Drawing, state_shown, title_of
from joblens.views.text.style import clean, fit, visible_width

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
    """`routes`: the points of each arrow, including its ends."""

    boxes: tuple[PlacedBox, ...]
    routes: tuple[tuple[tuple[float, float], ...], ...]
    width: float
    height: float


def lay_out(stages: Sequence[int], widths: Sequence[float], arrows: Sequence[tuple[int, int]]) -> Layout:
    """Returns the positions of boxes. `stages` and `widths` of each box; arrows lead to later stages."""
    grid = _Grid(stages, arrows)
    grid.order()
    middles = grid.middles()
    columns = _columns(stages, widths)
    boxes = tuple(
        PlacedBox(columns[stage][0], middles[index], width)
        for index, (stage, width) in enumerate(zip(stages, widths, strict=True))
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
    """Returns left edge and width of each stage."""
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
        for index, stage in enumerate(self.stage):
            self._columns[stage].append(index)

    def order(self) -> None:
        """Orders each column by the mean position of its neighbours, back and forth a few times."""
        rank = [0.0] * len(self.stage)
        for column in self._columns:
            self._number(column, rank)
        for sweep in range(_SWEEPS):
            forward = sweep % 2 == 0
            neighbours = self._before if forward else self._after
            for column in self._columns if forward else self._columns[::-1]:
                means = {
                    index: sum(rank[one] for one in neighbours[index]) / len(neighbours[index])
                    if neighbours[index]
                    else rank[index]
                    for index in column
                }
                column.sort(key=means.__getitem__)
                self._number(column, rank)

    @staticmethod
    def _number(column: list[int], rank: list[float]) -> None:
        # relative to the column's length, so that columns of different lengths compare
        for at, index in enumerate(column):
            rank[index] = (at + 0.5) / len(column)

    def middles(self) -> list[float]:
        """Returns heights near those of the neighbours, without overlap."""
        y = [0.0] * len(self.stage)
        for column in self._columns:
            below = 0.0
            for index in column:
                y[index] = below + self._height(index) / 2
                below += self._height(index) + _ROW_GAP
        for sweep in range(_SWEEPS):
            forward = sweep % 2 == 0
            neighbours = self._before if forward else self._after
            for column in self._columns if forward else self._columns[::-1]:
                targets = [
                    sum(y[one] for one in neighbours[index]) / len(neighbours[index])
                    if neighbours[index]
                    else y[index]
                    for index in column
                ]
                for index, height in zip(column, self._apart(column, targets), strict=True):
                    y[index] = height
        top = min((y[index] - self._height(index) / 2 for index in range(len(y))), default=0.0)
        return [height - top + MARGIN for height in y]

    def _apart(self, column: list[int], targets: list[float]) -> list[float]:
        """Separates boxes. The mean of pushing down and up keeps distances and stays near `targets`."""
        gaps = [(self._height(one) + self._height(other)) / 2 + _ROW_GAP for one, other in pairwise(column)]
        down, up = list(targets), list(targets)
        for at, gap in enumerate(gaps):
            down[at + 1] = max(down[at + 1], down[at] + gap)
        for at in range(len(gaps) - 1, -1, -1):
            up[at] = min(up[at], up[at + 1] - gaps[at])
        return [(one + other) / 2 for one, other in zip(down, up, strict=True)]

    def _height(self, index: int) -> float:
        return BOX_HEIGHT if index < self._boxes else _WAYPOINT_HEIGHT


_LONGEST_TITLE = 36
_CHARACTER = 7.3  # upper estimate for the 12 px monospace below
_HEADER = 34.0
_LEGEND, _LEGEND_CHARACTER = 30.0, 6.5
_NAMESPACE = "http://www.w3.org/2000/svg"
_ARROW_HEAD = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="7" markerHeight="7"'
    ' orient="auto"><path d="M0 0.5 L8 4 L0 7.5 z" fill="#868e96"/></marker></defs>'
)
_PLAIN = ("#ffffff", "#495057")
_STYLE = """
text{font:12px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#212529}
.head{font:600 14px system-ui,sans-serif}
.stage{font:11px system-ui,sans-serif;fill:#868e96}
.edge{fill:none;stroke:#868e96;stroke-width:1.2}
rect.box{stroke-width:1.3}
"""


def render_svg(drawing: Drawing) -> str:
    titles = [fit(title_of(box), _LONGEST_TITLE) for box in drawing.boxes]
    widths = [visible_width(title) * _CHARACTER + 20 for title in titles]
    arrows = [(arrow.source, arrow.target) for arrow in drawing.arrows]
    layout = lay_out([box.stage for box in drawing.boxes], widths, arrows)
    head = f"{clean(drawing.name)}: {counted(drawing.jobs, 'job')} in {counted(drawing.stages, 'stage')}"
    states = sorted({state for box in drawing.boxes for state in box.states})
    width = max(layout.width, len(head) * 8.5 + 2 * MARGIN, _legend_width(states))
    height = layout.height + _HEADER + (_LEGEND if states else 0.0)
    size = f'width="{width:.0f}" height="{height:.0f}"'
    parts = [
        f'<svg xmlns="{_NAMESPACE}" {size} viewBox="0 0 {width:.0f} {height:.0f}" role="img">',
        f"<title>{escape(head)}</title>",
        f"<style>{_STYLE}</style>",
        _ARROW_HEAD,
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text class="head" x="{MARGIN:.0f}" y="26">{escape(head)}</text>',
        f'<g transform="translate(0 {_HEADER:.0f})">',
        *_stage_marks(drawing, layout),
        *(f'<path class="edge" d="{_curve(route)}" marker-end="url(#tip)"/>' for route in layout.routes),
    ]
    for box, title, placed in zip(drawing.boxes, titles, layout.boxes, strict=True):
        parts += _box(box, title, placed)
    return "\n".join([*parts, "</g>", *_legend(states, layout.height + _HEADER), "</svg>", ""])


def _legend(states: Sequence[JobState], top: float) -> list[str]:
    """Draws a legend of the states; empty without a run."""
    parts, x = [], MARGIN
    for state in states:
        fill, edge = STATE_COLOURS[state]
        size = f'x="{x:.1f}" y="{top + 4:.1f}" width="14" height="14" rx="3"'
        parts.append(f'<rect class="box" {size} fill="{fill}" stroke="{edge}"/>')
        parts.append(f'<text class="stage" x="{x + 20:.1f}" y="{top + 15:.1f}">{state.label}</text>')
        x += _legend_entry(state)
    return parts


def _legend_entry(state: JobState) -> float:
    return 44 + len(state.label) * _LEGEND_CHARACTER


def _legend_width(states: Sequence[JobState]) -> float:
    return 2 * MARGIN + sum(map(_legend_entry, states))


def _stage_marks(drawing: Drawing, layout: Layout) -> list[str]:
    left_edges: dict[int, float] = {}
    for box, placed in zip(drawing.boxes, layout.boxes, strict=True):
        left_edges.setdefault(box.stage, placed.x)
    return [
        f'<text class="stage" x="{x:.1f}" y="14">stage {stage + 1}</text>' for stage, x in left_edges.items()
    ]


def _box(box: Box, title: str, placed: PlacedBox) -> list[str]:
    state = state_shown(box)
    fill, edge = STATE_COLOURS[state] if state is not None else _PLAIN
    top = placed.y - BOX_HEIGHT / 2
    tooltip = title_of(box) + "".join(f"\n{count:,} {each.label}" for each, count in box.states.items())
    size = f'x="{placed.x:.1f}" y="{top:.1f}" width="{placed.width:.1f}" height="{BOX_HEIGHT:.0f}" rx="6"'
    parts = ["<g>", f"<title>{escape(tooltip)}</title>"]
    if box.jobs > 1:  # a second box behind it marks several jobs
        behind = f'x="{placed.x + 4:.1f}" y="{top + 4:.1f}"'
        rest = f'width="{placed.width:.1f}" height="{BOX_HEIGHT:.0f}" rx="6"'
        parts.append(f'<rect class="box" {behind} {rest} fill="{fill}" stroke="{edge}" opacity="0.5"/>')
    parts.append(f'<rect class="box" {size} fill="{fill}" stroke="{edge}"/>')
    if len(box.states) > 1:
        parts += _state_bar(box, placed, top)
    x, y = placed.x + 10, placed.y + 4
    return [*parts, f'<text x="{x:.1f}" y="{y:.1f}">{escape(title)}</text>', "</g>"]


def _state_bar(box: Box, placed: PlacedBox, top: float) -> list[str]:
    """Draws the shares of a sweep's states along the lower edge."""
    parts, x, bar_width = [], placed.x + 6, placed.width - 12
    y = top + BOX_HEIGHT - 7
    for state, count in box.states.items():
        width = bar_width * count / box.jobs
        colour = STATE_COLOURS[state][1]
        parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="4" fill="{colour}"/>')
        x += width
    return parts


def _curve(route: Sequence[tuple[float, float]]) -> str:
    """Draws a curve that begins and ends horizontally: straight through columns, bent between them."""
    (x, y), *others = route
    parts = [f"M{x:.1f} {y:.1f}"]
    for at, (next_x, next_y) in enumerate(others):
        if at % 2 == 1:  # through a column
            parts.append(f"L{next_x:.1f} {next_y:.1f}")
        else:
            half = (x + next_x) / 2
            parts.append(f"C{half:.1f} {y:.1f} {half:.1f} {next_y:.1f} {next_x:.1f} {next_y:.1f}")
        x, y = next_x, next_y
    return " ".join(parts)
