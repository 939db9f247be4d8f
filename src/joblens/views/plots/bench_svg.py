"""Pictures of benchmarks as SVG, drawn without any library: every run as a point, and ratios with their
intervals."""

import html
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from joblens.analysis.comparing.bench_numbers import NUMBERS
from joblens.views.plots import colors
from joblens.views.plots.chart import shortened
from joblens.views.plots.gantt_svg import svg_opening, ticks

_WIDTH = 900
_LEFT, _RIGHT, _TOP, _BOTTOM = 190, 30, 44, 46
_ROW = 56
_RATIO_ROW = 30

Form = Mapping[str, Any]


class _Scale:
    """From numbers to places along the page."""

    def __init__(self, low: float, high: float) -> None:
        room = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
        self.low, self.high = low - room, high + room

    def x(self, value: float) -> float:
        return round(_LEFT + (_WIDTH - _LEFT - _RIGHT) * (value - self.low) / (self.high - self.low), 2)

    def ticks(self) -> list[float]:
        """Round numbers inside."""
        steps = ticks(self.high - self.low, 7)
        step = steps[1] if len(steps) > 1 else self.high - self.low
        first = -(-self.low // step)
        return [
            round((first + place) * step, 12)
            for place in range(int((self.high - first * step) / step + 1e-9) + 1)
        ]


def runs_svg(variants: Sequence[Form]) -> str:
    """Wall time of every run, one row a variant, in the order they ran from top to bottom of the row; the bar
    is the interval of the median. Runs that stand out have a ring."""
    shown = [variant for variant in variants if _times(variant)]
    if not shown:
        return ""
    every = [time for variant in shown for _, time in _times(variant)]
    unit, size = ("s", 1.0) if max(every) >= 1 else ("ms", 1e-3)
    scale = _Scale(min(every) / size, max(every) / size)
    height = _TOP + _BOTTOM + _ROW * len(shown)
    parts = [*_head("Wall time of every run", height), *_axis(scale, height, f"wall time ({unit})")]
    for place, variant in enumerate(shown):
        top = _TOP + _ROW * place
        parts += _label(variant["name"], top + _ROW / 2)
        parts += _points(variant, scale, size, unit, top, colors.CURVES[place % len(colors.CURVES)])
    return "\n".join([*parts, "</svg>", ""])


def ratios_svg(comparisons: Sequence[Form]) -> str:
    """Every ratio with its interval beside a line at 1: what lies across it may be chance."""
    rows = [
        (f"{comparison['variant']}: {what}", number)
        for comparison in comparisons
        for name, what in NUMBERS.items()
        if (number := comparison["numbers"][name]) is not None
    ]
    if not rows:
        return ""
    ends = [
        value
        for _, number in rows
        for value in (number["ratio"], number["low"], number["high"])
        if value is not None
    ]
    scale = _Scale(min(1.0, *ends), max(1.0, *ends))
    height = _TOP + _BOTTOM + _RATIO_ROW * len(rows)
    baseline = comparisons[0]["baseline"]
    parts = [
        *_head(f"Ratio to {baseline}", height),
        *_axis(scale, height, f"times as much as {baseline}; below 1 is less"),
    ]
    one = scale.x(1.0)
    bottom = height - _BOTTOM
    parts.append(
        f'<line x1="{one}" y1="{_TOP - 8}" x2="{one}" y2="{bottom}" stroke="{colors.BLACK}" '
        'stroke-width="1.2"/>'
    )
    for place, (label, number) in enumerate(rows):
        middle = _TOP + _RATIO_ROW * (place + 0.5)
        parts += [*_label(label, middle), *_ratio(number, scale, middle)]
    return "\n".join([*parts, "</svg>", ""])


def _times(variant: Form) -> list[tuple[Form, float]]:
    return [
        (run, run["duration_seconds"])
        for run in variant["runs"]
        if run["success"] and run["duration_seconds"] is not None
    ]


def _points(variant: Form, scale: _Scale, size: float, unit: str, top: float, color: str) -> Iterator[str]:
    metrics, runs = variant["metrics"], _times(variant)
    low, high = metrics["median_duration_low"], metrics["median_duration_high"]
    if low is not None:
        begin, end = scale.x(low / size), scale.x(high / size)
        yield (
            f'<rect x="{begin}" y="{top + 6}" width="{max(1.5, end - begin):.2f}" height="{_ROW - 12}" '
            f'fill="{color}" fill-opacity="0.18"/>'
        )
    middle = scale.x(metrics["median_duration"] / size)
    yield (
        f'<line x1="{middle}" y1="{top + 6}" x2="{middle}" y2="{top + _ROW - 6}" stroke="{color}" '
        f'stroke-width="2"/>'
    )
    room = _ROW - 20
    for place, (run, seconds) in enumerate(runs):
        y = top + 10 + (room * place / max(1, len(runs) - 1) if len(runs) > 1 else room / 2)
        stands_out = run["run_number"] in metrics["outliers"]
        ring = f' stroke="{colors.BLACK}" stroke-width="1.4"' if stands_out else ""
        about = f"run {run['run_number']}: {seconds / size:.4g} {unit}"
        yield (
            f'<circle cx="{scale.x(seconds / size)}" cy="{y:.1f}" r="3.2" fill="{color}" '
            f'fill-opacity="0.75"{ring}><title>{html.escape(about)}</title></circle>'
        )


def _ratio(number: Form, scale: _Scale, middle: float) -> Iterator[str]:
    color = colors.GREY
    if number["differs"]:
        color = colors.GREEN if number["ratio"] < 1 else colors.VERMILLION
    about = f"{number['ratio']:.4g}"
    if number["low"] is not None:
        about += f" ({number['low']:.4g} to {number['high']:.4g})"
        yield (
            f'<line x1="{scale.x(number["low"])}" y1="{middle}" x2="{scale.x(number["high"])}" y2="{middle}" '
            f'stroke="{color}" stroke-width="4" stroke-opacity="0.6"/>'
        )
    yield (
        f'<circle cx="{scale.x(number["ratio"])}" cy="{middle}" r="5" fill="{color}">'
        f"<title>{html.escape(about)}</title></circle>"
    )


def _head(title: str, height: float) -> Iterator[str]:
    yield from svg_opening(title, _WIDTH, height)
    yield f'<text x="16" y="24" font-size="14" font-weight="bold">{html.escape(title)}</text>'


def _axis(scale: _Scale, height: float, title: str) -> Iterator[str]:
    bottom = height - _BOTTOM
    for value in scale.ticks():
        at = scale.x(value)
        yield f'<line x1="{at}" y1="{_TOP}" x2="{at}" y2="{bottom}" stroke="{colors.GRID}"/>'
        yield f'<text x="{at}" y="{bottom + 15}" text-anchor="middle">{value:g}</text>'
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    yield f'<text x="{middle}" y="{bottom + 36}" text-anchor="middle">{html.escape(title)}</text>'


def _label(text: str, middle: float) -> Iterator[str]:
    shown = html.escape(shortened(text, 26))
    yield (
        f'<text x="{_LEFT - 10}" y="{middle + 4:.1f}" text-anchor="end">{shown}'
        f"<title>{html.escape(shortened(text, 400))}</title></text>"
    )
