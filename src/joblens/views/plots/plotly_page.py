"""Plotly page: a chart as a plotly.js figure in one self-contained HTML file."""

import html
from typing import Any

from msgspec import json

from joblens.model.errors import MissingExtra, how_to_install
from joblens.views.plots import chart as colors
from joblens.views.plots.chart import DASHES, BarPanel, Chart, Line, LinePanel, SpanPanel
from joblens.views.text.style import PAGE_HEAD

Part = dict[str, Any]

_FONT = "DejaVu Sans, Verdana, Arial, sans-serif"
_GAP = 26  # pixels between panels
_GAP_WITH_LEGEND = 46
_TOP, _BOTTOM = 84, 64
_BAR_ROW = 30


def plotly_figure(chart: Chart) -> Part:
    """Returns `data` and `layout`."""
    if isinstance(chart.panels[0], BarPanel):
        data, layout = _side_by_side(chart)
    else:
        data, layout = _stacked(chart)
    return {"data": data, "layout": {**_common(chart), **layout}}


def escaped(text: str) -> str:
    """Escapes text, because plotly.js interprets some HTML."""
    return html.escape(text, quote=False)


def _common(chart: Chart) -> Part:
    title = f"<b>{escaped(chart.title)}</b>"
    return {
        "title": {
            "text": title,
            "subtitle": {"text": escaped(chart.subtitle), "font": {"size": 12, "color": "#555555"}},
            "x": 0.01,
            "xanchor": "left",
            "font": {"size": 18},
        },
        "font": {"family": _FONT, "size": 12, "color": colors.TEXT},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "hoverlabel": {"align": "left", "namelength": -1, "bgcolor": "white", "font": {"color": colors.TEXT}},
        "dragmode": "zoom",
    }


def _axis(title: str, **more: Any) -> Part:
    return {
        "title": {"text": escaped(title)},
        "gridcolor": colors.GRID,
        "zeroline": False,
        "showline": True,
        "linecolor": colors.GREY,
        "ticks": "outside",
        "automargin": True,
        **more,
    }


def _key(kind: str, number: int) -> str:
    """Returns the name of an axis: xaxis, xaxis2, …; in traces x, x2, …"""
    return kind if number == 1 else f"{kind}{number}"


# ---- one below the other --------------------------------------------------------------------------------


def _stacked(chart: Chart) -> tuple[list[Part], Part]:
    panels = [panel for panel in chart.panels if not isinstance(panel, BarPanel)]
    axes = len(panels[0].axes) if isinstance(panels[0], LinePanel) else 1
    gap = _GAP if axes <= 2 else _GAP_WITH_LEGEND
    inner = sum(panel.height for panel in panels) + gap * (len(panels) - 1)
    data: list[Part] = []
    layout: Part = {
        "height": inner + _TOP + _BOTTOM,
        "margin": {"t": _TOP, "b": _BOTTOM, "l": 70, "r": 40},
        "barmode": "overlay",
        "hovermode": "x unified" if axes > 2 else "closest",
    }
    top = 1.0
    y_number = 1
    for index, panel in enumerate(panels):
        bottom = max(0.0, top - panel.height / inner)
        names = _Names(y_number, "legend" if index == 0 else f"legend{index + 1}")
        if isinstance(panel, SpanPanel):
            data += _span_traces(panel, names)
            layout[names.y_key(0)] = _row_axis(panel, [bottom, top])
        else:
            data += [_line_trace(line, names, is_alone=axes <= 2) for line in panel.lines]
            layout.update(_line_axes(panel, names, [bottom, top]))
        layout[names.legend] = _legend(top, is_above=axes > 2)
        layout["xaxis"] = _axis(chart.x_title, anchor=names.y(0), rangemode="tozero")
        y_number += 1 if isinstance(panel, SpanPanel) else len(panel.axes)
        top = bottom - gap / inner
    if axes > 2:
        layout["margin"]["t"] += 26
        layout["height"] += 26
    elif axes == 2:
        layout["legend"]["x"] = 1.08
    return data, layout


def _legend(top: float, *, is_above: bool) -> Part:
    """Returns the legend of one panel: a line above it if it has axes at both sides."""
    if is_above:
        return {"orientation": "h", "x": 0, "y": top, "yanchor": "bottom", "font": {"size": 11}}
    return {"x": 1.01, "xanchor": "left", "y": top, "yanchor": "top", "font": {"size": 11}}


class _Names:
    """Names of the axes and the legend of one panel in traces and layout."""

    def __init__(self, first: int, legend: str) -> None:
        self._first = first
        self.legend = legend

    def y_key(self, axis: int) -> str:
        return _key("yaxis", self._first + axis)

    def y(self, axis: int) -> str:
        return _key("y", self._first + axis)


def _line_axes(panel: LinePanel, names: _Names, domain: list[float]) -> Part:
    axes: Part = {}
    for index, axis in enumerate(panel.axes):
        more: Part = {"rangemode": "tozero", "domain": domain}
        if index:
            more = {"rangemode": "tozero", "overlaying": names.y(0), "side": "right", "showgrid": False}
            more |= {"anchor": "x"} if index == 1 else {"anchor": "free", "autoshift": True, "shift": 6}
            # plotly.js cannot draw the line of an axis whose curves are all hidden
            more["showline"] = False
        if axis.is_whole:
            known = [y for line in panel.lines if line.axis == index for y in line.y if y is not None]
            more |= {"tickformat": ",d"} | ({"dtick": 1} if max(known, default=0) <= 8 else {})
        if axis.most is not None:
            more |= {"range": [0, axis.most], "tickmode": "linear", "dtick": axis.step or axis.most / 5}
        part = _axis(axis.title, **more)
        if axis.color:
            part["title"]["font"] = part["tickfont"] = {"color": axis.color}
        axes[names.y_key(index)] = part
    return axes


def _line_trace(line: Line, names: _Names, *, is_alone: bool) -> Part:
    """Draws a line. `is_alone`: the tooltip shows one curve at a time, so it includes the time."""
    at = f"{escaped(line.unit)}<br>at %{{x}}" if is_alone else escaped(line.unit)
    trace: Part = {
        "type": "scatter",
        "mode": "lines+markers" if line.needs_marks else "lines",
        "name": escaped(line.name),
        "x": list(line.x),
        "y": list(line.y),
        "yaxis": names.y(line.axis),
        "legend": names.legend,
        "line": {
            "color": line.color,
            "width": line.width,
            "dash": line.dash,
            "shape": "vh" if line.is_rate else "hv" if line.is_step else "linear",
        },
        "hovertemplate": f"%{{y:,.{line.decimals}f}} {at}<extra>{escaped(line.name)}</extra>",
        "marker": {"size": 5},
        "connectgaps": False,
        "zorder": DASHES.index(line.dash),  # a dashed curve shows the one below it
    }
    if line.is_filled:
        trace |= {"fill": "tozeroy", "fillcolor": f"{line.color}40"}
    if not line.is_shown:
        trace["visible"] = "legendonly"
    return trace


def _row_axis(panel: SpanPanel, domain: list[float]) -> Part:
    reach = [panel.rows - 0.4, -0.6]
    if not panel.row_names:
        return _axis(
            "Jobs in parallel", domain=domain, range=reach, showticklabels=False, ticks="", showgrid=False
        )
    return _axis(
        "",
        domain=domain,
        range=reach,
        tickmode="array",
        tickvals=list(range(panel.rows)),
        ticktext=[escaped(name) for name in panel.row_names],
        tickfont={"size": 11},
        showgrid=False,
    )


def _span_traces(panel: SpanPanel, names: _Names) -> list[Part]:
    where = {"yaxis": names.y(0), "legend": names.legend}
    traces: list[Part] = []
    if panel.row_names:
        traces.append(_waiting_trace(panel, where))
    for state in dict.fromkeys(span.state for span in panel.spans):
        spans = [span for span in panel.spans if span.state == state]
        edges = [colors.BLACK if span.is_critical else span.color for span in spans]
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": state,
                "x": [max(0.0, round(span.end - span.begin, 4)) for span in spans],
                "base": [span.begin for span in spans],
                "y": [span.row for span in spans],
                "width": 0.66 if panel.row_names else 0.8,
                "marker": {
                    "color": spans[0].color,
                    "line": {"color": edges, "width": [2 if span.is_critical else 0.5 for span in spans]},
                },
                "hovertext": ["<br>".join(map(escaped, span.about)) for span in spans],
                "hovertemplate": "%{hovertext}<extra></extra>",
                **where,
            }
        )
    traces.append(_critical_trace(panel, where))
    return traces


def _waiting_trace(panel: SpanPanel, where: Part) -> Part:
    x: list[float | None] = []
    y: list[int | None] = []
    for span in panel.spans:
        if span.begin > span.waits_from:
            x += [span.waits_from, span.begin, None]
            y += [span.row, span.row, None]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "ready, waiting",
        "x": x,
        "y": y,
        "line": {"color": colors.PURPLE, "width": 2, "dash": "dot"},
        "hoverinfo": "skip",
        **where,
    }


def _critical_trace(panel: SpanPanel, where: Part) -> Part:
    x: list[float | None] = []
    y: list[int | None] = []
    for connection in panel.connections:
        x += [*connection.x, None]
        y += [*connection.rows, None]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "critical path",
        "x": x or [None],
        "y": y or [None],
        "line": {"color": colors.BLACK, "width": 2},
        "hoverinfo": "skip",
        **where,
    }


# ---- bars side by side ----------------------------------------------------------------------------------


def _side_by_side(chart: Chart) -> tuple[list[Part], Part]:
    panels = [panel for panel in chart.panels if isinstance(panel, BarPanel)]
    count = len(panels[0].names)
    data: list[Part] = []
    layout: Part = {
        "height": max(260, count * _BAR_ROW + _TOP + _BOTTOM + 24),
        "margin": {"t": _TOP + 24, "b": _BOTTOM, "l": 70, "r": 30},
        "barmode": "group",
        "bargap": 0.25,
        "hovermode": "closest",
        "legend": {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom"},
        # by index, because two jobs may have the same name
        "yaxis": _axis(
            "",
            range=[count - 0.5, -0.5],
            tickmode="array",
            tickvals=list(range(count)),
            ticktext=[escaped(name) for name in panels[0].names],
            tickfont={"size": 11},
            showgrid=False,
        ),
    }
    width = (1.0 - 0.05 * (len(panels) - 1)) / len(panels)
    for index, panel in enumerate(panels):
        begin = index * (width + 0.05)
        layout[_key("xaxis", index + 1)] = _axis(
            panel.axis.title, domain=[begin, min(1.0, begin + width)], rangemode="tozero", anchor="y"
        )
        data += _bar_traces(panel, _key("x", index + 1))
    named: set[str] = set()  # once each: the request may be known in one panel only
    for trace in data:
        trace["showlegend"] = trace["name"] not in named
        named.add(trace["name"])
    return data, layout


def _bar_traces(panel: BarPanel, x_axis: str) -> list[Part]:
    indexes = list(range(len(panel.names)))
    about = [escaped(name) for name in panel.names]
    shared = {"xaxis": x_axis, "yaxis": "y", "hovertext": about}
    traces: list[Part] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": group.name,
            "legendgroup": group.name,
            "x": list(group.values),
            "y": indexes,
            "marker": {"color": group.color},
            "hovertemplate": f"%{{hovertext}}<br>{group.name}: %{{x:,.4~r}}<extra></extra>",
            **shared,
        }
        for group in panel.groups
    ]
    if panel.marks is not None:
        marks = panel.marks
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": marks.name,
                "legendgroup": marks.name,
                "x": list(marks.values),
                "y": indexes,
                "marker": {"symbol": "line-ns", "size": 18, "line": {"width": 2, "color": marks.color}},
                "hovertemplate": f"%{{hovertext}}<br>{marks.name}: %{{x:,.4~r}}<extra></extra>",
                **shared,
            }
        )
    return traces


_PAGE = (
    PAGE_HEAD
    + """<style>body {{ margin: 0; background: white; }} #plot {{ width: 100%; min-width: 640px; }}</style>
<script>{script}</script>
</head>
<body>
<div id="plot"></div>
<script>
const figure = {figure};
const name = {name};
const saved = (format) => ({{
  name: "Download as " + format.toUpperCase(),
  icon: format === "svg" ? Plotly.Icons.disk : Plotly.Icons.camera,
  click: (plot) => Plotly.downloadImage(plot, {{format: format, filename: name, scale: 2}}),
}});
figure.layout.height = Math.max(figure.layout.height, window.innerHeight);
Plotly.newPlot("plot", figure.data, figure.layout, {{
  responsive: true,
  displaylogo: false,
  showSendToCloud: false,
  plotlyServerURL: "",
  scrollZoom: true,
  modeBarButtonsToRemove: ["toImage", "select2d", "lasso2d"],
  modeBarButtonsToAdd: [saved("png"), saved("svg")],
}});
</script>
</body>
</html>
"""
)


def plotly_script() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise MissingExtra(
            "interactive plots need plotly, which is not installed", hint=how_to_install("plots")
        ) from error
    script: str = get_plotlyjs()
    return script


def plotly_page(chart: Chart, script: str, name: str) -> str:
    """Returns an HTML page. `name`: file name of images saved from it."""
    return _PAGE.format(
        title=html.escape(chart.title),
        script=script,
        figure=_inside_a_script(plotly_figure(chart)),
        name=_inside_a_script(name),
    )


def _inside_a_script(value: Any) -> str:
    """Escapes JSON so that it cannot end the script around it."""
    return json.encode(value).decode().replace("<", "\\u003c")
