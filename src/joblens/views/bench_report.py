"""Results of benchmarks as a report: Markdown, and the same as one HTML page with its pictures inside."""

import html
from collections.abc import Mapping, Sequence
from typing import Any

from joblens.analysis.bench_numbers import NUMBERS, variants_of
from joblens.views.bench import command_text, fine_duration, notes, verdict
from joblens.views.plots.bench_svg import ratios_svg, runs_svg
from joblens.views.style import clean

Form = Mapping[str, Any]
Row = Sequence[str]

_WIDE = 10_000
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="joblens">
<title>{title}</title>
<style>
body {{ font-family: "DejaVu Sans", Verdana, Arial, sans-serif; color: #222; max-width: 960px;
  margin: 2em auto; padding: 0 1em; line-height: 1.45; }}
table {{ border-collapse: collapse; margin: 1em 0; }}
th, td {{ border-bottom: 1px solid #ddd; padding: 0.3em 0.8em; text-align: right; white-space: nowrap; }}
th:first-child, td:first-child {{ text-align: left; white-space: normal; }}
code {{ background: #f4f4f4; padding: 0.1em 0.3em; overflow-wrap: anywhere; }}
svg {{ max-width: 100%; height: auto; }}
</style>
</head>
<body>
{body}
</body>
</html>
"""


class _Markdown:
    ending = ".md"

    def heading(self, level: int, text: str) -> str:
        return f"\n{'#' * level} {_escaped(text)}\n\n"

    def code_line(self, name: str, code: str, mark: str) -> str:
        ticks = "``" if "`" in code else "`"
        return f"- **{_escaped(name)}**{mark}: {ticks}{code}{ticks}\n"

    def item(self, text: str) -> str:
        return f"- {_escaped(text)}\n"

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
        return f"<table>\n<tr>{head}</tr>\n{body}</table>\n"

    def picture(self, _name: str, _title: str, svg: str) -> str:
        return svg

    def page(self, title: str, body: str) -> str:
        return _PAGE.format(title=html.escape(title), body=body)


def markdown_report(documents: Sequence[Form], title: str) -> tuple[str, dict[str, str]]:
    """-> (the text, picture's file name -> SVG). Links to the pictures are relative."""
    pictures = {name: svg for document in documents for name, _, svg in _pictures(document)}
    return _report(documents, title, _Markdown()), pictures


def html_report(documents: Sequence[Form], title: str) -> str:
    return _report(documents, title, _Html())


def _report(documents: Sequence[Form], title: str, form: _Markdown | _Html) -> str:
    parts = [form.heading(1, title)]
    for document in documents:
        parts += _section(document, form)
    return form.page(title, _single_gaps("".join(parts)))


def _section(document: Form, form: _Markdown | _Html) -> list[str]:
    variants = variants_of(document)
    parts = [form.heading(2, document.get("title") or variants[0]["name"])]
    parts.append(form.item(f"{document['created_time'][:19]} UTC, {document['id']}"))
    for variant in variants:
        mark = " (baseline)" if len(variants) > 1 and variant["name"] == document.get("baseline") else ""
        parts.append(form.code_line(clean(variant["name"]), command_text(variant), mark))
    if document.get("params"):
        parts.append(
            form.item("parameters: " + ", ".join(f"{k} = {v}" for k, v in document["params"].items()))
        )
    parts.append(form.table(_TITLES, [_row(variant) for variant in variants]))
    for comparison in document.get("comparisons") or ():
        parts.append(form.item(_sentence(comparison)))
        rows = _ratio_rows(comparison)
        if rows:
            parts.append(form.table(("", "ratio", "from", "to", "sure"), rows))
    parts += [form.picture(*picture) for picture in _pictures(document)]
    parts += [form.item(line.removeprefix("· ")) for line in notes(document, variants, _WIDE)]
    parts += [form.heading(3, "Machine"), form.table(("", ""), _machine(document["system_info"]))]
    return parts


_TITLES = ("", "runs", "succeeded", "median", "mean", "deviation", "least", "most", "CPU time", "memory, MiB")


def _row(variant: Form) -> Row:
    numbers = variant["metrics"]
    return (
        clean(variant["name"]),
        str(numbers["runs"]),
        f"{numbers['success_rate']:g}%",
        *(fine_duration(numbers[f"{name}_duration"]) for name in ("median", "avg", "std", "min", "max")),
        fine_duration(numbers["avg_cpu_seconds"]),
        "-" if numbers["avg_memory"] is None else f"{numbers['avg_memory']:.1f}",
    )


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
    "load_1min": "load before",
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
