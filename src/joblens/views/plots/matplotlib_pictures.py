"""Charts as PNG or SVG pictures, drawn by matplotlib without a screen."""

import io
import logging
import textwrap
import warnings
from collections.abc import Sequence
from typing import Any

from msgspec import structs

from joblens.model.errors import MissingExtra, how_to_install
from joblens.views.plots import chart as colors
from joblens.views.plots.chart import DASHES, BarPanel, Chart, Line, LinePanel, SpanPanel

_DPI = 110
_WIDTH = 12.0  # inches
_PIXELS = 100.0  # of a panel's height per inch
_DASHES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
_COLUMNS = 3  # of a legend with many names
_STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.0,
    "text.color": colors.TEXT,
    "text.parse_math": False,  # names may contain $
    "axes.labelcolor": colors.TEXT,
    "axes.edgecolor": colors.GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": colors.GRID,
    "xtick.color": colors.TEXT,
    "ytick.color": colors.TEXT,
    "legend.frameon": False,
    "legend.fontsize": 8.0,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "joblens",  # equal charts make equal files
}


def load_matplotlib() -> tuple[Any, Any]:
    """Returns the module and its Figure class. Raises MissingExtra."""
    try:
        logging.getLogger("matplotlib").setLevel(logging.ERROR)  # no warnings about caches and fonts
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra(
            "pictures need matplotlib, which is not installed", hint=how_to_install("plots")
        ) from error
    return mpl, Figure


def picture(chart: Chart, form: str) -> bytes:
    """Returns the picture. `form`: png or svg."""
    mpl, figure_of = load_matplotlib()
    made = io.BytesIO()
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # characters missing in the font are drawn as boxes
        figure = figure_of(figsize=(_WIDTH, _height(chart)), dpi=_DPI, layout="constrained")
        if isinstance(chart.panels[0], BarPanel):
            _draw_bars(figure, chart)
        else:
            _draw_stacked(figure, chart)
        figure.suptitle(chart.title, x=0.01, ha="left", fontsize=12, fontweight="bold")
        subtitle = "\n".join(textwrap.wrap(chart.subtitle, 140))
        above = 24.0 if figure.axes[0].get_legend() is not None and _is_legend_above(chart) else 8.0
        figure.axes[0].set_title(subtitle, loc="left", fontsize=9, color="#555555", pad=above)
        figure.savefig(made, format=form, metadata={"Date": None} if form == "svg" else None)
    return made.getvalue()


def _height(chart: Chart) -> float:
    first = chart.panels[0]
    if isinstance(first, BarPanel):
        return max(2.8, 1.6 + 0.27 * len(first.names))
    below = (
        0.0 if isinstance(first, SpanPanel) or _is_legend_above(chart) else len(first.lines) / _COLUMNS * 0.19
    )
    panels = [panel for panel in chart.panels if not isinstance(panel, BarPanel)]
    return 1.2 + below + sum(panel.height for panel in panels) / _PIXELS


def _is_legend_above(chart: Chart) -> bool:
    """Returns whether the legend is above the curves, for few names. Many names are in columns below, those
    of a run on the right."""
    first = chart.panels[0]
    return isinstance(first, BarPanel) or (isinstance(first, LinePanel) and len(first.axes) > 2)


def _draw_stacked(figure: Any, chart: Chart) -> None:
    panels = [panel for panel in chart.panels if not isinstance(panel, BarPanel)]
    heights = [panel.height for panel in panels]
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    legend = "above" if _is_legend_above(chart) else "below" if len(panels) == 1 else "beside"
    for panel, axis in zip(panels, axes, strict=True):
        if isinstance(panel, SpanPanel):
            _draw_spans(axis, panel)
        else:
            _draw_lines(axis, panel, legend)
    axes[-1].set_xlabel(chart.x_title)
    axes[-1].set_xlim(left=0)


# ---- curves ---------------------------------------------------------------------------------------------


def _draw_lines(axis: Any, panel: LinePanel, legend: str) -> None:
    # the legend of a run also lists hidden lines
    shown = [line for line in panel.lines if line.is_shown or legend == "beside"]
    used = sorted({line.axis for line in shown} | {0})
    axes = {index: axis if index == 0 else axis.twinx() for index in used}
    for index, one in axes.items():
        one.set_ylabel(panel.axes[index].title, color=panel.axes[index].color or colors.TEXT)
        if panel.axes[index].color:
            one.tick_params(axis="y", colors=panel.axes[index].color)
        if panel.axes[index].is_whole:
            one.yaxis.get_major_locator().set_params(integer=True)
        if index:
            one.grid(visible=False)
            one.spines["right"].set_visible(True)
        if index > 1:
            one.spines["right"].set_position(("outward", 52.0 * (index - 1)))
    drawn = [_draw_line(axes[line.axis], line) for line in shown]
    for index, one in axes.items():
        most, step = panel.axes[index].most, panel.axes[index].step
        one.set_ylim(bottom=0, top=most if step else None)
        if most and step:
            one.set_yticks([at * step for at in range(round(most / step) + 1)])
    _legend(axis, legend, drawn, [line.name for line in shown])


def _draw_line(axis: Any, line: Line) -> Any:
    if not line.is_shown:
        line = structs.replace(line, x=(), y=(), is_filled=False)
    y = [float("nan") if value is None else value for value in line.y]
    marker = "o" if line.needs_marks else ""
    style = {"color": line.color, "linewidth": line.width, "linestyle": _DASHES[line.dash], "marker": marker}
    style["markersize"] = 3.5
    if line.is_filled:
        axis.fill_between(
            line.x, y, step="post" if line.is_step else None, color=line.color, alpha=0.25, linewidth=0
        )
    # a dashed curve shows the one below it
    shape = "steps-pre" if line.is_rate else "steps-post" if line.is_step else "default"
    (drawn,) = axis.plot(line.x, y, drawstyle=shape, zorder=2 + DASHES.index(line.dash) / 10, **style)
    return drawn


def _legend(axis: Any, index: str, handles: Sequence[Any], names: Sequence[str]) -> None:
    if not handles:
        return
    if index == "above":
        axis.legend(handles, names, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=5)
    elif index == "below":
        axis.legend(handles, names, loc="upper left", bbox_to_anchor=(0, -0.09), ncols=_COLUMNS)
    else:
        axis.legend(handles, names, loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0)


# ---- attempts along the time ----------------------------------------------------------------------------


def _draw_spans(axis: Any, panel: SpanPanel) -> None:
    handles: dict[str, Any] = {}
    if panel.row_names:
        waits = [span for span in panel.spans if span.begin > span.waits_from]
        rows = [span.row for span in waits]
        handles["ready, waiting"] = axis.hlines(
            rows,
            [span.waits_from for span in waits],
            [span.begin for span in waits],
            color=colors.PURPLE,
            linestyle=":",
            linewidth=1.5,
        )
        axis.set_yticks(range(panel.rows), panel.row_names, fontsize=8)
        axis.grid(visible=False, axis="y")
    else:
        axis.set_yticks([])
        axis.set_ylabel("Jobs in parallel")
    for state in dict.fromkeys(span.state for span in panel.spans):
        spans = [span for span in panel.spans if span.state == state]
        handles[state] = axis.barh(
            [span.row for span in spans],
            [span.end - span.begin for span in spans],
            left=[span.begin for span in spans],
            height=0.66 if panel.row_names else 0.8,
            color=spans[0].color,
            edgecolor=[colors.BLACK if span.is_critical else span.color for span in spans],
            linewidth=[1.4 if span.is_critical else 0.8 for span in spans],
        )
    for connection in panel.connections:
        (handles["critical path"],) = axis.plot(
            connection.x, connection.rows, color=colors.BLACK, linewidth=1.4
        )
    axis.set_ylim(panel.rows - 0.4, -0.6)
    axis.legend(
        handles.values(), handles.keys(), loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0
    )


# ---- bars side by side ----------------------------------------------------------------------------------


def _draw_bars(figure: Any, chart: Chart) -> None:
    panels = [panel for panel in chart.panels if isinstance(panel, BarPanel)]
    all_axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for panel, axis in zip(panels, all_axes, strict=True):
        count = len(panel.groups)
        thickness = 0.76 / count
        for index, group in enumerate(panel.groups):
            bars = [(value, row) for row, value in enumerate(group.values) if value is not None]
            axis.barh(
                [row + (index - (count - 1) / 2) * thickness for _, row in bars],
                [value for value, _ in bars],
                height=thickness,
                color=group.color,
                label=group.name,
            )
        if panel.marks is not None:
            known = [(value, row) for row, value in enumerate(panel.marks.values) if value is not None]
            axis.plot(
                [value for value, _ in known],
                [row for _, row in known],
                "|",
                color=panel.marks.color,
                markersize=13,
                markeredgewidth=1.6,
                label=panel.marks.name,
            )
        axis.set_xlabel(panel.axis.title)
        axis.set_xlim(left=0)
        axis.grid(visible=False, axis="y")
    all_axes[0].set_yticks(range(len(panels[0].names)), panels[0].names, fontsize=8)
    all_axes[0].set_ylim(len(panels[0].names) - 0.5, -0.5)
    # the request may be known in one panel only
    named: dict[str, Any] = {}
    for axis in all_axes:
        handles, names = axis.get_legend_handles_labels()
        named |= dict(zip(names, handles, strict=True))
    all_axes[0].legend(named.values(), named.keys(), loc="lower left", bbox_to_anchor=(0, 1.0), ncols=3)
