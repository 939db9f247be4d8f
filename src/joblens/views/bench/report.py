"""Benchmark report: Markdown, and one HTML page with its SVG charts inside."""

import html
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from joblens.analysis.comparing.bench import COMMANDS, NUMBERS, compared_documents, variants_of
from joblens.views.bench.text import (
    command_text,
    differences_of,
    fine_duration,
    notes,
    parameters_text,
    verdict,
)
from joblens.views.plots import chart
from joblens.views.plots.chart import shortened
from joblens.views.plots.gantt import svg_opening, ticks
from joblens.views.text.numbers import UNKNOWN
from joblens.views.text.style import PAGE_HEAD, clean

_WIDTH = 900
_LEFT, _RIGHT, _TOP, _BOTTOM = 190, 30, 44, 46
_ROW = 56
_RATIO_ROW = 30

Form = Mapping[str, Any]


class _Scale:
    """Maps numbers to horizontal positions."""

    def __init__(self, low: float, high: float) -> None:
        margin = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
        self.low, self.high = low - margin, high + margin

    def x(self, value: float) -> float:
        return round(_LEFT + (_WIDTH - _LEFT - _RIGHT) * (value - self.low) / (self.high - self.low), 2)

    def ticks(self) -> list[float]:
        """Returns round numbers within the range."""
        steps = ticks(self.high - self.low, 7)
        step = steps[1] if len(steps) > 1 else self.high - self.low
        first = -(-self.low // step)
        return [
            round((first + index) * step, 12)
            for index in range(int((self.high - first * step) / step + 1e-9) + 1)
        ]


def runs_svg(variants: Sequence[Form]) -> str:
    """Draws the wall time of every run: one row per variant, its runs in order from top to bottom. The bar is
    the confidence interval of the median; outliers have a ring."""
    shown = [variant for variant in variants if _times(variant)]
    if not shown:
        return ""
    every = [time for variant in shown for _, time in _times(variant)]
    unit, size = ("s", 1.0) if max(every) >= 1 else ("ms", 1e-3)
    scale = _Scale(min(every) / size, max(every) / size)
    height = _TOP + _BOTTOM + _ROW * len(shown)
    parts = [*_head("Wall time of every run", height), *_axis(scale, height, f"wall time ({unit})")]
    for index, variant in enumerate(shown):
        top = _TOP + _ROW * index
        parts += _label(variant["name"], top + _ROW / 2)
        parts += _points(variant, scale, size, unit, top, chart.CURVES[index % len(chart.CURVES)])
    return "\n".join([*parts, "</svg>", ""])


def ratios_svg(comparisons: Sequence[Form]) -> str:
    """Draws every ratio with its interval and a line at 1; an interval across the line may be chance."""
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
        f'<line x1="{one}" y1="{_TOP - 8}" x2="{one}" y2="{bottom}" stroke="{chart.BLACK}" '
        'stroke-width="1.2"/>'
    )
    for index, (label, number) in enumerate(rows):
        middle = _TOP + _RATIO_ROW * (index + 0.5)
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
    margin = _ROW - 20
    for index, (run, seconds) in enumerate(runs):
        y = top + 10 + (margin * index / max(1, len(runs) - 1) if len(runs) > 1 else margin / 2)
        is_outlier = run["run_number"] in metrics["outliers"]
        ring = f' stroke="{chart.BLACK}" stroke-width="1.4"' if is_outlier else ""
        about = f"run {run['run_number']}: {seconds / size:.4g} {unit}"
        yield (
            f'<circle cx="{scale.x(seconds / size)}" cy="{y:.1f}" r="3.2" fill="{color}" '
            f'fill-opacity="0.75"{ring}><title>{html.escape(about)}</title></circle>'
        )


def _ratio(number: Form, scale: _Scale, middle: float) -> Iterator[str]:
    color = chart.GREY
    if number["differs"]:
        color = chart.GREEN if number["ratio"] < 1 else chart.VERMILLION
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
        yield f'<line x1="{at}" y1="{_TOP}" x2="{at}" y2="{bottom}" stroke="{chart.GRID}"/>'
        yield f'<text x="{at}" y="{bottom + 15}" text-anchor="middle">{value:g}</text>'
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    yield f'<text x="{middle}" y="{bottom + 36}" text-anchor="middle">{html.escape(title)}</text>'


def _label(text: str, middle: float) -> Iterator[str]:
    shown = html.escape(shortened(text, 26))
    yield (
        f'<text x="{_LEFT - 10}" y="{middle + 4:.1f}" text-anchor="end">{shown}'
        f"<title>{html.escape(shortened(text, 400))}</title></text>"
    )


Row = Sequence[str]

_WIDE = 10_000
_PAGE = (
    PAGE_HEAD
    + """<style>
body {{ font-family: "DejaVu Sans", Verdana, Arial, sans-serif; color: #222; max-width: 960px;
  margin: 2em auto; padding: 0 1em; line-height: 1.45; }}
.table {{ overflow-x: auto; margin: 1em 0; }}
table {{ border-collapse: collapse; }}
th, td {{ border-bottom: 1px solid #ddd; padding: 0.3em 0.7em; text-align: right; white-space: nowrap; }}
th:first-child, td:first-child, .words td {{ text-align: left; white-space: normal; }}
p {{ overflow-wrap: anywhere; }}
code {{ background: #f4f4f4; padding: 0.1em 0.3em; overflow-wrap: anywhere; }}
svg {{ max-width: 100%; height: auto; }}
</style>
</head>
<body>
{body}
</body>
</html>
"""
)


class _Markdown:
    ending = ".md"

    def heading(self, level: int, text: str) -> str:
        return f"\n{'#' * level} {_escaped(text)}\n\n"

    def code_line(self, name: str, code: str, mark: str) -> str:
        ticks = "``" if "`" in code else "`"
        return f"- **{_escaped(name)}**{mark}: {ticks}{code}{ticks}\n"

    def item(self, text: str) -> str:
        return f"- {_escaped(text)}\n"

    def words_table(self, rows: Sequence[Row]) -> str:
        head = "\n| | |\n| --- | --- |\n"
        return head + "".join(f"| {' | '.join(map(_escaped, row))} |\n" for row in rows) + "\n"

    def table(self, titles: Row, rows: Sequence[Row]) -> str:
        lines = [
            titles,
            ["---", *["---:"] * (len(titles) - 1)],
            *([_escaped(cell) for cell in row] for row in rows),
        ]
        return "\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n"

    def picture(self, name: str, title: str, _svg: str) -> str:
        return f"\n![{title}]({name})\n\n"

    def page(self, _title: str, body: str) -> str:
        return body


class _Html:
    ending = ".html"

    def heading(self, level: int, text: str) -> str:
        return f"<h{level}>{html.escape(text)}</h{level}>\n"

    def code_line(self, name: str, code: str, mark: str) -> str:
        return f"<p><b>{html.escape(name)}</b>{mark}: <code>{html.escape(code)}</code></p>\n"

    def item(self, text: str) -> str:
        return f"<p>{html.escape(text)}</p>\n"

    def table(self, titles: Row, rows: Sequence[Row]) -> str:
        head = "".join(f"<th>{html.escape(title)}</th>" for title in titles)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>\n" for row in rows
        )
        return f'<div class="table"><table>\n<tr>{head}</tr>\n{body}</table></div>\n'

    def words_table(self, rows: Sequence[Row]) -> str:
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>\n" for row in rows
        )
        return f'<div class="table"><table class="words">\n{body}</table></div>\n'

    def picture(self, _name: str, _title: str, svg: str) -> str:
        return svg

    def page(self, title: str, body: str) -> str:
        return _PAGE.format(title=html.escape(title), body=body)


def markdown_report(
    documents: Sequence[Form], title: str, *, compares: bool = False
) -> tuple[str, dict[str, str]]:
    """Returns (text, file name of each picture -> SVG). Links to the pictures are relative. `compares`: also
    compares each result with the first."""
    drawn = [picture for document in documents for picture in _pictures(document)]
    drawn += _compared_pictures(documents) if compares else []
    return _report(documents, title, _Markdown(), compares=compares), {name: svg for name, _, svg in drawn}


def html_report(documents: Sequence[Form], title: str, *, compares: bool = False) -> str:
    return _report(documents, title, _Html(), compares=compares)


def _report(documents: Sequence[Form], title: str, form: _Markdown | _Html, *, compares: bool) -> str:
    parts = [form.heading(1, title)]
    is_compared = compares and len(documents) > 1
    parts += _compared(documents, form) if is_compared else []
    machines = [_machine(document["system_info"]) for document in documents]
    is_same = all(machine == machines[0] for machine in machines)
    for document, machine in zip(documents, machines, strict=True):
        parts += _section(document, form, title if len(documents) == 1 else "")
        parts += [] if is_same else [form.heading(3, "Machine"), form.words_table(machine)]
    if any(_pictures(document) for document in documents):
        parts += [form.heading(2, "Legend"), *map(form.item, _LEGEND)]
    parts += [form.heading(2, "Machine"), form.words_table(machines[0])] if is_same and machines else []
    return form.page(title, _single_gaps("".join(parts)))


_LEGEND = (
    (
        "Wall time: one point per run, in order from top to bottom. The line is the median, the band its "
        "confidence interval; there is none for fewer than six runs. A black ring marks an outlier."
    ),
    (
        "Ratios: the point is the ratio, the bar its confidence interval. Green: significantly less than the "
        "baseline; orange: significantly more; grey: no significant difference, or too few runs."
    ),
)


# ---- comparisons -------------------------------------------------------------------------------------------


def _compared(documents: Sequence[Form], form: _Markdown | _Html) -> list[str]:
    parts = [form.heading(2, "Compared")]
    for index, document in enumerate(documents):
        parts.append(form.item(f"{_result_name(index)}: {_title_of(document)}"))
    for comparison, document in zip(_comparisons(documents), documents[1:], strict=True):
        parts += _comparison(comparison, form)
        parts += [form.item(text_line) for text_line in differences_of(documents[0], document)]
    return parts + [form.picture(*picture) for picture in _compared_pictures(documents)]


def _result_name(index: int) -> str:
    return f"result {index + 1}"


def _title_of(document: Form) -> str:
    variant = variants_of(document)[-1]["name"] if document["kind"] == COMMANDS else ""
    about = [document.get("title") or "", clean(variant), parameters_text(document)]
    return f"{document['id']} ({'; '.join(text for text in about if text)})"


def _comparisons(documents: Sequence[Form]) -> list[Form]:
    return [
        {
            **compared_documents(documents[0], other),
            "baseline": _result_name(0),
            "variant": _result_name(index),
        }
        for index, other in enumerate(documents[1:], start=1)
    ]


def _compared_pictures(documents: Sequence[Form]) -> list[tuple[str, str, str]]:
    if len(documents) < 2:
        return []
    variants = [
        {**variants_of(document)[-1], "name": _result_name(index)} for index, document in enumerate(documents)
    ]
    name = f"{documents[0]['id']}-compared"
    drawn = [
        (f"{name}-runs.svg", "wall time of every run", runs_svg(variants)),
        (f"{name}-ratios.svg", "ratios", ratios_svg(_comparisons(documents))),
    ]
    return [picture for picture in drawn if picture[2]]


def _comparison(comparison: Form, form: _Markdown | _Html) -> list[str]:
    rows = _ratio_rows(comparison)
    text_line = form.item(_sentence(comparison))
    return [text_line, form.table(("", "ratio", "from", "to", "confidence"), rows)] if rows else [text_line]


# ---- single results ----------------------------------------------------------------------------------------


def _section(document: Form, form: _Markdown | _Html, title: str) -> list[str]:
    """Returns a section. `title`: the heading already written above it."""
    variants = variants_of(document)
    heading = document.get("title") or variants[0]["name"]
    parts = [] if heading == title else [form.heading(2, heading)]
    load = document["system_info"].get("load_1min")
    before = "" if load is None else f", load before {load:.4g}"
    parts.append(form.item(f"{document['created_time'][:19]} UTC, {document['id']}{before}"))
    for variant in variants:
        mark = " (baseline)" if len(variants) > 1 and variant["name"] == document.get("baseline") else ""
        parts.append(form.code_line(clean(variant["name"]), command_text(variant), mark))
    if document.get("params"):
        parts.append(form.item(f"parameters: {parameters_text(document)}"))
    parts.append(form.table(_TITLES, [_row(variant) for variant in variants]))
    for comparison in document.get("comparisons") or ():
        parts += _comparison(comparison, form)
    parts += [form.picture(*picture) for picture in _pictures(document)]
    parts += [form.item(line.removeprefix("· ")) for line in notes(document, variants, _WIDE)]
    return parts


_TITLES = (
    *("", "runs", "succeeded", "median", "mean", "deviation", "minimum", "maximum", "CPU time"),
    *("memory, MiB", "read, MiB", "written, MiB"),
)


def _row(variant: Form) -> Row:
    numbers = variant["metrics"]
    return (
        clean(variant["name"]),
        str(numbers["runs"]),
        f"{numbers['success_rate']:g}%",
        *(fine_duration(numbers[f"{name}_duration"]) for name in ("median", "avg", "std", "min", "max")),
        fine_duration(numbers["avg_cpu_seconds"]),
        *(_tenths(numbers[name]) for name in ("avg_memory", "avg_io_read_mb", "avg_io_write_mb")),
    )


def _tenths(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1f}"


def _sentence(comparison: Form) -> str:
    number = comparison["numbers"]["duration_seconds"]
    names = f"{clean(comparison['variant'])} against {clean(comparison['baseline'])}"
    if number is None:
        return f"{names}: nothing to compare: one of them has no successful run."
    return f"{names}: {verdict(number, NUMBERS['duration_seconds'])}."


def _ratio_rows(comparison: Form) -> list[Row]:
    rows: list[Row] = []
    for name, what in NUMBERS.items():
        number = comparison["numbers"][name]
        if number is None:
            continue
        ends = ["-"] * 3
        if number["low"] is not None:
            ends = [f"{number['low']:.4f}", f"{number['high']:.4f}", f"{100 * number['confidence']:.1f}%"]
        rows.append((what, f"{number['ratio']:.4f}", *ends))
    return rows


def _pictures(document: Form) -> list[tuple[str, str, str]]:
    """Returns (file name, title, SVG) of each picture."""
    drawn = [
        (f"{document['id']}-runs.svg", "wall time of every run", runs_svg(variants_of(document))),
        (f"{document['id']}-ratios.svg", "ratios", ratios_svg(document.get("comparisons") or ())),
    ]
    return [picture for picture in drawn if picture[2]]


_MACHINE = {
    "hostname": "host",
    "platform": "system",
    "cpu_model": "processor",
    "usable_cpus": "CPUs",
    "usable_memory_mb": "memory, MiB",
    "gpus": "GPUs",
    "python_version": "Python",
    "joblens_version": "joblens",
}


def _machine(system: Form) -> list[Row]:
    rows: list[Row] = []
    for key, what in _MACHINE.items():
        value = system.get(key)
        if isinstance(value, list):
            value = ", ".join(map(str, value)) or "none"
        if value is not None:
            rows.append(
                (what, f"{value:.4g}" if isinstance(value, float) and value < 1000 else _whole(value))
            )
    return rows


def _whole(value: Any) -> str:
    return f"{value:.0f}" if isinstance(value, float) else clean(str(value))


def _single_gaps(text: str) -> str:
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    return text.strip("\n") + "\n"


def _escaped(text: str) -> str:
    """Escapes Markdown in names."""
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>|#" else letter for letter in text)
