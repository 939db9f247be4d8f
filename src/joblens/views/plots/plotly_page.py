"""A figure as one HTML file that needs nothing else: the script of plotly.js is inside. Its button that would
upload the figure is taken away: what is in a page stays with whoever has the file."""

import html
from typing import Any

from msgspec import json

from joblens.model.errors import MissingExtra, how_to_install
from joblens.views.plots.chart import Chart
from joblens.views.plots.plotly_figure import plotly_figure
from joblens.views.text.html_page import PAGE_HEAD

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
    """`name` is what a picture saved from the page is called."""
    return _PAGE.format(
        title=html.escape(chart.title),
        script=script,
        figure=_inside_a_script(plotly_figure(chart)),
        name=_inside_a_script(name),
    )


def _inside_a_script(value: Any) -> str:
    """JSON in which nothing can end the script it stands in."""
    return json.encode(value).decode().replace("<", "\\u003c")
