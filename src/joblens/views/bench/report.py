"""Results of benchmarks as a report: Markdown, and the same as one HTML page with its pictures inside."""

import html
from collections.abc import Mapping, Sequence
from typing import Any

from joblens.analysis.comparing.bench_numbers import COMMANDS, NUMBERS, compared_documents, variants_of
from joblens.views.bench.text import (
    command_text,
    differences_of,
    fine_duration,
    notes,
    parameters_text,
    verdict,
)
from joblens.views.plots.bench_svg import ratios_svg, runs_svg
from joblens.views.text.html_page import PAGE_HEAD
from joblens.views.text.numbers import UNKNOWN
from joblens.views.text.style import clean

Form = Mapping[str, Any]
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
    """-> (the text, picture's file name -> SVG). Links to the pictures are relative. `compares`: each result
    also with the first."""
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
        parts += [form.heading(2, "How to read the pictures"), *map(form.item, _LEGEND)]
    parts += [form.heading(2, "Machine"), form.words_table(machines[0])] if is_same and machines else []
    return form.page(title, _single_gaps("".join(parts)))


_LEGEND = (
    (
        "Wall time: a point is a run, in the order they ran from top to bottom. The line is the median, the "
        "band the interval in which it lies; there is none for fewer than six runs. A black ring marks a run "
        "that stands out."
    ),
    (
        "Ratios: the point is the ratio, the bar its interval. Green is certainly less than the baseline, "
        "orange certainly more; grey may be chance, or has too few runs to say."
    ),
)


# ---- one beside another ------------------------------------------------------------------------------------


def _compared(documents: Sequence[Form], form: _Markdown | _Html) -> list[str]:
    parts = [form.heading(2, "Compared")]
    for place, document in enumerate(documents):
        parts.append(form.item(f"{_called(place)}: {_in_short(document)}"))
    for comparison, document in zip(_comparisons(documents), documents[1:], strict=True):
        parts += _comparison(comparison, form)
        parts += [form.item(said) for said in differences_of(documents[0], document)]
    return parts + [form.picture(*picture) for picture in _compared_pictures(documents)]


def _called(place: int) -> str:
    return f"result {place + 1}"


def _in_short(document: Form) -> str:
    variant = variants_of(document)[-1]["name"] if document["kind"] == COMMANDS else ""
    about = [document.get("title") or "", clean(variant), parameters_text(document)]
    return f"{document['id']} ({'; '.join(text for text in about if text)})"


def _comparisons(documents: Sequence[Form]) -> list[Form]:
    return [
        {**compared_documents(documents[0], other), "baseline": _called(0), "variant": _called(place)}
        for place, other in enumerate(documents[1:], start=1)
    ]


def _compared_pictures(documents: Sequence[Form]) -> list[tuple[str, str, str]]:
    if len(documents) < 2:
        return []
    variants = [
        {**variants_of(document)[-1], "name": _called(place)} for place, document in enumerate(documents)
    ]
    name = f"{documents[0]['id']}-compared"
    drawn = [
        (f"{name}-runs.svg", "wall time of every run", runs_svg(variants)),
        (f"{name}-ratios.svg", "ratios", ratios_svg(_comparisons(documents))),
    ]
    return [picture for picture in drawn if picture[2]]


def _comparison(comparison: Form, form: _Markdown | _Html) -> list[str]:
    rows = _ratio_rows(comparison)
    said = form.item(_sentence(comparison))
    return [said, form.table(("", "ratio", "from", "to", "sure"), rows)] if rows else [said]


# ---- one by itself -----------------------------------------------------------------------------------------


def _section(document: Form, form: _Markdown | _Html, title: str) -> list[str]:
    """`title`: what already stands above it."""
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
    *("", "runs", "succeeded", "median", "mean", "deviation", "least", "most", "CPU time"),
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
        return f"{names}: nothing to compare, one of them has no run that succeeded."
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
    """(file name, title, SVG)."""
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
    """Nothing in a name is to be read as Markdown."""
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>|#" else letter for letter in text)
