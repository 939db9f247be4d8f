"""A workflow's graph as one SVG file that needs nothing else."""

from collections.abc import Sequence

from joblens.model.runs.run import JobState
from joblens.views.graph.drawing import Box, Drawing
from joblens.views.graph.layout import BOX_HEIGHT, MARGIN, Layout, PlacedBox, lay_out
from joblens.views.graph.text import STATE_COLOURS, state_shown, title_of
from joblens.views.text.numbers import counted
from joblens.views.text.style import clean, fit, visible_width

_LONGEST_TITLE = 36
_CHARACTER = 7.3  # of the 12 px monospace below, on the wide side
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
        f"<title>{_escaped(head)}</title>",
        f"<style>{_STYLE}</style>",
        _ARROW_HEAD,
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text class="head" x="{MARGIN:.0f}" y="26">{_escaped(head)}</text>',
        f'<g transform="translate(0 {_HEADER:.0f})">',
        *_stage_marks(drawing, layout),
        *(f'<path class="edge" d="{_curve(route)}" marker-end="url(#tip)"/>' for route in layout.routes),
    ]
    for box, title, placed in zip(drawing.boxes, titles, layout.boxes, strict=True):
        parts += _box(box, title, placed)
    return "\n".join([*parts, "</g>", *_legend(states, layout.height + _HEADER), "</svg>", ""])


def _legend(states: Sequence[JobState], top: float) -> list[str]:
    """What the colours say; without a run there are none."""
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
    left: dict[int, float] = {}
    for box, placed in zip(drawing.boxes, layout.boxes, strict=True):
        left.setdefault(box.stage, placed.x)
    return [f'<text class="stage" x="{x:.1f}" y="14">stage {stage + 1}</text>' for stage, x in left.items()]


def _box(box: Box, title: str, placed: PlacedBox) -> list[str]:
    state = state_shown(box)
    fill, edge = STATE_COLOURS[state] if state is not None else _PLAIN
    top = placed.y - BOX_HEIGHT / 2
    told = title_of(box) + "".join(f"\n{count:,} {each.label}" for each, count in box.states.items())
    size = f'x="{placed.x:.1f}" y="{top:.1f}" width="{placed.width:.1f}" height="{BOX_HEIGHT:.0f}" rx="6"'
    parts = ["<g>", f"<title>{_escaped(told)}</title>"]
    if box.jobs > 1:  # a second sheet behind it: there are several
        behind = f'x="{placed.x + 4:.1f}" y="{top + 4:.1f}"'
        rest = f'width="{placed.width:.1f}" height="{BOX_HEIGHT:.0f}" rx="6"'
        parts.append(f'<rect class="box" {behind} {rest} fill="{fill}" stroke="{edge}" opacity="0.5"/>')
    parts.append(f'<rect class="box" {size} fill="{fill}" stroke="{edge}"/>')
    if len(box.states) > 1:
        parts += _state_bar(box, placed, top)
    x, y = placed.x + 10, placed.y + 4
    return [*parts, f'<text x="{x:.1f}" y="{y:.1f}">{_escaped(title)}</text>', "</g>"]


def _state_bar(box: Box, placed: PlacedBox, top: float) -> list[str]:
    """How many of a sweep's jobs are in which state, along the lower edge."""
    parts, x, room = [], placed.x + 6, placed.width - 12
    y = top + BOX_HEIGHT - 7
    for state, count in box.states.items():
        width = room * count / box.jobs
        colour = STATE_COLOURS[state][1]
        parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="4" fill="{colour}"/>')
        x += width
    return parts


def _curve(route: Sequence[tuple[float, float]]) -> str:
    """Leaves and arrives level; straight through a column, bent between columns."""
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


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
