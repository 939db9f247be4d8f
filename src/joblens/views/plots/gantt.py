"""Gantt chart of a run, and its drawing as SVG without any library."""

import html
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from joblens.analysis.charts.gantt import Bar, Cause, Gantt, Link, MachineUse, StepCurve
from joblens.model.values.units import counted, format_bytes, format_duration
from joblens.views.plots import chart as colors
from joblens.views.plots.chart import (
    Axis,
    Chart,
    Connection,
    Line,
    LinePanel,
    Scale,
    Span,
    SpanPanel,
    memory_scale,
    shortened,
    time_scale,
)
from joblens.views.text.numbers import instant

_LONGEST_NAME = 36
_OFFER = "available"
_FAR_ABOVE = 5


def gantt_chart(gantt: Gantt, use: MachineUse, title: str) -> Chart:
    clock = time_scale(gantt.end_us - gantt.begin_us)
    memory = memory_scale(max([*use.memory_reserved.values, *use.memory_used.values], default=None))
    plain = Scale("", 1.0)
    panels = (
        _span_panel(gantt, clock),
        _strip(
            gantt,
            clock,
            plain,
            Axis("Jobs", is_whole=True),
            [("running", use.jobs_running, colors.SKY), ("ready, waiting", use.jobs_waiting, colors.PURPLE)],
        ),
        _strip(
            gantt,
            clock,
            plain,
            Axis("CPUs"),
            _three("CPUs", use.cpus_offered, use.cpus_reserved, use.cpus_used),
        ),
        _strip(
            gantt,
            clock,
            memory,
            Axis(f"Memory ({memory.unit})"),
            _three("memory", use.memory_offered, use.memory_reserved, use.memory_used),
        ),
    )
    return Chart(
        stem="gantt",
        title=title,
        subtitle=_about(gantt),
        x_title=f"Time since the run's start ({clock.unit})",
        panels=panels,
    )


def _three(
    of: str, offered: StepCurve, reserved: StepCurve, used: StepCurve
) -> list[tuple[str, StepCurve, str]]:
    return [
        (f"{of} available", offered, colors.BLACK),
        (f"{of} reserved", reserved, colors.ORANGE),
        (f"{of} used", used, colors.BLUE),
    ]


def _about(gantt: Gantt) -> str:
    final = {bar.index: bar for bar in gantt.bars}
    states = Counter(bar.state.label for bar in final.values())
    words = [
        f"started {instant(gantt.begin_us)}",
        f"{format_duration((gantt.end_us - gantt.begin_us) / 1e6)} long",
        ", ".join(f"{count:,} {state}" for state, count in states.most_common()),
    ]
    if gantt.not_started:
        words.append(f"{counted(gantt.not_started, 'job')} did not start")
    if len(gantt.bars) > len(final):
        words.append(counted(len(gantt.bars), "attempt"))
    busy_us = sum(gantt.bars[index].ended_us - gantt.bars[index].began_us for index in gantt.critical_bars)
    words.append(
        f"critical path: {counted(len(gantt.critical_bars), 'job')}, running {format_duration(busy_us / 1e6)}"
    )
    return " · ".join(words)


def _span_panel(gantt: Gantt, clock: Scale) -> SpanPanel:
    causes = {link.later: link for link in gantt.critical}
    spans = tuple(_span(bar, gantt, clock, causes.get(index)) for index, bar in enumerate(gantt.bars))
    return SpanPanel(
        spans=spans,
        connections=tuple(_connections(gantt, clock)),
        rows=gantt.rows,
        row_names=tuple(shortened(name, _LONGEST_NAME) for name in gantt.row_names),
    )


def _span(bar: Bar, gantt: Gantt, clock: Scale, link: Link | None) -> Span:
    begin, end = clock.of(bar.began_us - gantt.begin_us), clock.of(bar.ended_us - gantt.begin_us)
    return Span(
        begin=begin,
        end=end,
        waits_from=clock.of(bar.ready_us - gantt.begin_us),
        row=bar.row,
        state=bar.state.label,
        color=colors.state_color(bar.state),
        about=tuple(_about_bar(bar, gantt, link)),
        is_critical=link is not None,
    )


def _about_bar(bar: Bar, gantt: Gantt, link: Link | None) -> Iterable[str]:
    attempt = f", attempt {bar.attempt}" if bar.attempt > 1 else ""
    yield f"{shortened(bar.name, 70)} (job {bar.number}{attempt})"
    yield f"{bar.state.label}, ran {format_duration((bar.ended_us - bar.began_us) / 1e6)}"
    if bar.waited_us > 0:
        yield f"ready, waited {format_duration(bar.waited_us / 1e6)}"
    asked = bar.requirements
    if asked.cpus is not None or asked.memory_bytes is not None:
        cpus = "" if asked.cpus is None else counted(asked.cpus, "CPU")
        memory = "" if asked.memory_bytes is None else format_bytes(asked.memory_bytes)
        yield f"requested {', '.join(filter(None, (cpus, memory)))}"
    if bar.memory_bytes is not None:
        yield f"peak memory {format_bytes(bar.memory_bytes)}"
    if link is not None:
        yield f"on the critical path: {_why(link, gantt)}"


def _why(link: Link, gantt: Gantt) -> str:
    if link.earlier is None:
        return link.cause.value
    name = shortened(gantt.bars[link.earlier].name, 40)
    return {
        Cause.DEPENDENCY: f"started when its dependency {name} ended",
        Cause.RESOURCES: f"started when {name} freed capacity",
        Cause.RETRY: "started after the previous attempt",
    }.get(link.cause, link.cause.value)


def _connections(gantt: Gantt, clock: Scale) -> Iterable[Connection]:
    for link in gantt.critical:
        if link.earlier is not None:
            earlier, later = gantt.bars[link.earlier], gantt.bars[link.later]
            yield Connection(
                (clock.of(earlier.ended_us - gantt.begin_us), clock.of(later.began_us - gantt.begin_us)),
                (earlier.row, later.row),
            )


def _strip(
    gantt: Gantt, clock: Scale, scale: Scale, axis: Axis, curves: Sequence[tuple[str, StepCurve, str]]
) -> LinePanel:
    known = [(name, curve, color) for name, curve, color in curves if curve.at_us]
    most = max((max(curve.values) for name, curve, _ in known if not name.endswith(_OFFER)), default=0.0)
    lines = tuple(_step_line(*entry, gantt, clock, scale, most) for entry in known)
    return LinePanel(lines=lines, axes=(axis,), height=120)


def _step_line(
    name: str, curve: StepCurve, color: str, gantt: Gantt, clock: Scale, scale: Scale, most: float
) -> Line:
    """Draws a line from the run's start to its end. A capacity far above everything else is only in the
    legend: it would flatten the other curves."""
    end = clock.of(gantt.end_us - gantt.begin_us)
    x = [min(max(0.0, at), end) for at in clock.times(curve.at_us, gantt.begin_us)]
    is_offer = name.endswith(_OFFER)
    last = scale.of(curve.values[-1])
    amount = f"{last:,.0f}" if last >= 1000 else f"{last:.4g}"
    label = f"{name} ({amount}{scale.unit and ' '}{scale.unit})" if is_offer else name
    return Line(
        name=label,
        x=[*x, end],
        y=[*scale.all_of(curve.values), scale.of(curve.values[-1])],
        color=color,
        is_step=True,
        is_filled=not is_offer and "reserved" not in name,
        is_shown=not is_offer or curve.values[-1] <= _FAR_ABOVE * most,
        dash="dash" if is_offer else "solid",
        width=1.4,
        decimals=2 if scale.unit in ("GiB", "MiB") else 1,
        unit=scale.unit,
    )


_WIDTH = 1240
_LEFT_NAMES, _LEFT_PLAIN, _RIGHT = 250, 70, 210
_TOP, _BOTTOM, _GAP = 64, 48, 24
_DASHES = {"solid": "", "dash": "6 4", "dot": "2 3", "dashdot": "6 3 2 3"}


class _Frame:
    """Position of a panel on the page, and of numbers within it."""

    def __init__(self, left: float, top: float, height: float, x_most: float, y_most: float) -> None:
        self.left, self.top, self.height = left, top, height
        self.width = _WIDTH - _RIGHT - left
        self._x_most, self._y_most = x_most or 1.0, y_most or 1.0

    def x(self, value: float) -> float:
        return round(self.left + self.width * value / self._x_most, 2)

    def y(self, value: float) -> float:
        return round(self.top + self.height * (1 - value / self._y_most), 2)

    @property
    def bottom(self) -> float:
        return self.top + self.height


def gantt_svg(chart: Chart) -> str:
    panels = [panel for panel in chart.panels if isinstance(panel, SpanPanel | LinePanel)]
    height = _TOP + _BOTTOM + sum(panel.height for panel in panels) + _GAP * (len(panels) - 1)
    return "\n".join([*_head(chart, height), *_body(chart, panels), "</svg>", ""])


def ticks(most: float, count: int) -> list[float]:
    """Returns about `count` round numbers from 0."""
    if most <= 0:
        return [0.0]
    rough = most / count
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * size for factor in (1, 2, 5, 10) if factor * size >= rough * 0.999)
    return [round(index * step, 10) for index in range(math.floor(most / step + 1e-9) + 1)]


def svg_opening(title: str, width: int, height: float) -> Iterator[str]:
    """Yields the beginning of an SVG with a white background."""
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:.0f}" '
        f'width="{width}" height="{height:.0f}" font-family="DejaVu Sans, Verdana, Arial, sans-serif" '
        f'font-size="11" fill="{colors.TEXT}">'
    )
    yield f"<title>{html.escape(title)}</title>"
    yield f'<rect width="{width}" height="{height:.0f}" fill="white"/>'


def _head(chart: Chart, height: float) -> Iterator[str]:
    yield from svg_opening(chart.title, _WIDTH, height)
    yield _text(16, 26, chart.title, size=16, weight="bold")
    yield _text(16, 46, chart.subtitle, color="#555555")


def _body(chart: Chart, panels: list[SpanPanel | LinePanel]) -> Iterator[str]:
    has_names = any(isinstance(panel, SpanPanel) and panel.row_names for panel in panels)
    left = _LEFT_NAMES if has_names else _LEFT_PLAIN
    x_most = max(
        max((span.end for span in panel.spans), default=0.0)
        if isinstance(panel, SpanPanel)
        else max((x for line in panel.lines for x in line.x), default=0.0)
        for panel in panels
    )
    top = float(_TOP)
    frame = _Frame(left, top, 0.0, x_most, 1.0)
    for panel in panels:
        y_most = _highest(panel) if isinstance(panel, LinePanel) else float(panel.rows)
        frame = _Frame(left, top, panel.height, x_most, y_most)
        yield from _grid(frame, x_most)
        yield from _spans(panel, frame) if isinstance(panel, SpanPanel) else _lines(panel, frame)
        top = frame.bottom + _GAP
    for value in ticks(x_most, 10):
        yield _text(frame.x(value), frame.bottom + 15, f"{value:g}", anchor="middle")
    yield _text(frame.left + frame.width / 2, frame.bottom + 36, chart.x_title, anchor="middle")


def _grid(frame: _Frame, x_most: float) -> Iterator[str]:
    for value in ticks(x_most, 10):
        at = frame.x(value)
        yield f'<line x1="{at}" y1="{frame.top}" x2="{at}" y2="{frame.bottom}" stroke="{colors.GRID}"/>'
    yield (
        f'<line x1="{frame.left}" y1="{frame.bottom}" x2="{frame.left + frame.width}" y2="{frame.bottom}" '
        f'stroke="{colors.GREY}"/>'
    )


# ---- attempts -------------------------------------------------------------------------------------------


def _spans(panel: SpanPanel, frame: _Frame) -> Iterator[str]:
    row = frame.height / max(1, panel.rows)
    thick = row * (0.66 if panel.row_names else 0.8)
    middles = [frame.top + row * (index + 0.5) for index in range(panel.rows)]
    for name, middle in zip(panel.row_names, middles, strict=False):
        yield _text(frame.left - 8, middle + 4, name, anchor="end")
    if not panel.row_names:
        yield _sideways(frame, "Jobs in parallel")
    for span in panel.spans:
        begin, end = frame.x(span.begin), frame.x(span.end)
        middle = middles[span.row]
        if panel.row_names and span.begin > span.waits_from:
            yield (
                f'<line x1="{frame.x(span.waits_from)}" y1="{middle:.1f}" x2="{begin}" y2="{middle:.1f}" '
                f'stroke="{colors.PURPLE}" stroke-width="1.5" stroke-dasharray="2 3"/>'
            )
        edge = f' stroke="{colors.BLACK}" stroke-width="1.6"' if span.is_critical else ""
        about = html.escape("\n".join(span.about))
        yield (
            f'<rect x="{begin}" y="{middle - thick / 2:.1f}" width="{max(0.8, end - begin):.2f}" '
            f'height="{thick:.1f}" fill="{span.color}"{edge}><title>{about}</title></rect>'
        )
    for connection in panel.connections:
        (x1, x2), (row1, row2) = connection.x, connection.rows
        yield (
            f'<line x1="{frame.x(x1)}" y1="{middles[row1]:.1f}" x2="{frame.x(x2)}" y2="{middles[row2]:.1f}" '
            f'stroke="{colors.BLACK}" stroke-width="1.6"/>'
        )
    yield from _span_legend(panel, frame)


def _span_legend(panel: SpanPanel, frame: _Frame) -> Iterator[str]:
    entries = [
        (state, f'fill="{color}"', 10)
        for state, color in dict.fromkeys((span.state, span.color) for span in panel.spans)
    ]
    if panel.row_names:
        entries.append(("ready, waiting", f'fill="{colors.PURPLE}"', 2))
    entries.append(("critical path", f'fill="none" stroke="{colors.BLACK}" stroke-width="1.6"', 10))
    for index, (name, style, height) in enumerate(entries):
        middle = frame.top + 10 + index * 17
        yield (
            f'<rect x="{frame.left + frame.width + 14}" y="{middle - height / 2}" width="18" '
            f'height="{height}" {style}/>'
        )
        yield _text(frame.left + frame.width + 38, middle + 4, name)


# ---- curves ---------------------------------------------------------------------------------------------


def _highest(panel: LinePanel) -> float:
    values = [value for line in panel.lines if line.is_shown for value in line.y if value is not None]
    return max(values, default=1.0) * 1.05 or 1.0


def _lines(panel: LinePanel, frame: _Frame) -> Iterator[str]:
    for value in ticks(_highest(panel), 4):
        at = frame.y(value)
        yield (
            f'<line x1="{frame.left}" y1="{at}" x2="{frame.left + frame.width}" y2="{at}" '
            f'stroke="{colors.GRID}"/>'
        )
        yield _text(frame.left - 8, at + 4, f"{value:g}", anchor="end")
    yield _sideways(frame, panel.axes[0].title)
    for index, line in enumerate(panel.lines):
        if line.is_shown:
            yield from _line(line, frame)
        middle = frame.top + 10 + index * 17
        dash = _dash(line)
        yield (
            f'<line x1="{frame.left + frame.width + 14}" y1="{middle}" x2="{frame.left + frame.width + 32}" '
            f'y2="{middle}" stroke="{line.color}" stroke-width="2"{dash}/>'
        )
        yield _text(frame.left + frame.width + 38, middle + 4, line.name)


def _line(line: Line, frame: _Frame) -> Iterator[str]:
    points: list[str] = []
    before: float | None = None
    for x, y in zip(line.x, line.y, strict=True):
        if y is None:
            continue
        if before is not None and line.is_step:
            points.append(f"{frame.x(x)},{frame.y(before)}")
        points.append(f"{frame.x(x)},{frame.y(y)}")
        before = y
    if line.is_filled and points:
        ends = f"{points[-1].split(',')[0]},{frame.bottom} {points[0].split(',')[0]},{frame.bottom}"
        yield f'<polygon points="{" ".join(points)} {ends}" fill="{line.color}" fill-opacity="0.25"/>'
    yield (
        f'<polyline points="{" ".join(points)}" fill="none" stroke="{line.color}" '
        f'stroke-width="{line.width}"{_dash(line)}/>'
    )


def _dash(line: Line) -> str:
    return f' stroke-dasharray="{_DASHES[line.dash]}"' if _DASHES[line.dash] else ""


def _sideways(frame: _Frame, text: str) -> str:
    x, y = frame.left - 48, frame.top + frame.height / 2
    return (
        f'<text x="{x}" y="{y:.1f}" text-anchor="middle" transform="rotate(-90 {x} {y:.1f})">'
        f"{html.escape(text)}</text>"
    )


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", size: int = 11, weight: str = "", color: str = ""
) -> str:
    more = f' font-size="{size}"' if size != 11 else ""
    more += f' font-weight="{weight}"' if weight else ""
    more += f' fill="{color}"' if color else ""
    more += f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{html.escape(text)}</text>'
