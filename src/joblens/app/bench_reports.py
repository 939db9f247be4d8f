"""Reports of benchmarks, written to where they are wanted."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from joblens.model.errors import BenchmarkError
from joblens.views.bench_report import html_report, markdown_report

_HTML, _MARKDOWN = (".html", ".htm"), (".md", ".markdown")


def report_text(documents: Sequence[Mapping[str, Any]], title: str) -> str:
    return markdown_report(documents, title)[0]


def write_report(documents: Sequence[Mapping[str, Any]], title: str, path: str) -> str:
    """-> the report as Markdown, whatever was written."""
    text, pictures = markdown_report(documents, title)
    ending = os.path.splitext(path)[1].lower()
    if ending in _HTML:
        files = {path: html_report(documents, title)}
    elif ending in _MARKDOWN:
        folder = os.path.dirname(path)
        files = {**{os.path.join(folder, name): svg for name, svg in pictures.items()}, path: text}
    else:
        raise BenchmarkError(f"{path}: a report is an .html or .md file")
    try:
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        for name, content in files.items():
            with open(name, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(content)
    except OSError as error:
        raise BenchmarkError(f"{path}: the report could not be written: {error.strerror}") from error
    return text
