"""Reports of benchmarks, written to where they are wanted."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from joblens.app.reports.exports import output_file
from joblens.model.errors import BenchmarkError
from joblens.views.bench.report import html_report, markdown_report

_HTML, _MARKDOWN = (".html", ".htm"), (".md", ".markdown")


def report_text(documents: Sequence[Mapping[str, Any]], title: str, *, compares: bool = False) -> str:
    return markdown_report(documents, title, compares=compares)[0]


def check_report_place(path: str) -> None:
    """Before anything is run for it. Raises BenchmarkError; no folder is made for it, as it may be
    mistyped."""
    if os.path.splitext(path)[1].lower() not in (*_HTML, *_MARKDOWN):
        raise BenchmarkError(f"{path}: a report is an .html or .md file")
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise BenchmarkError(f"{path}: the report could not be written: there is no folder {folder}")


def write_report(
    documents: Sequence[Mapping[str, Any]], title: str, path: str, *, compares: bool = False
) -> str:
    """-> the report as Markdown, whatever was written."""
    check_report_place(path)
    text, pictures = markdown_report(documents, title, compares=compares)
    if os.path.splitext(path)[1].lower() in _HTML:
        files = {path: html_report(documents, title, compares=compares)}
    else:
        folder = os.path.dirname(path)
        files = {**{os.path.join(folder, name): svg for name, svg in pictures.items()}, path: text}
    for name, content in files.items():
        with output_file(name) as file:
            file.write(content.encode(errors="backslashreplace"))
    return text
