"""Edits of KDL: an argument or property, or a node more or less in a block."""

import json
import re
from typing import Any

from joblens.spec.editing.edit_lines import (
    Splice,
    after_comment,
    drop_lines,
    ends_line,
    indent_at,
    line_start,
    newline_of,
)
from joblens.spec.formats.kdl_lines import KdlNode
from joblens.spec.formats.kdl_workflow import DOCUMENT, NAME, PROPERTY
from joblens.spec.formats.literals import write_key, write_value
from joblens.spec.formats.positions import LIST, Entry, Node, Path

_ANNOTATION = re.compile(r"\([^)]*\)[ \t]*")
_QUOTE = re.compile(r'r?#*"+|true|false')
_OLD_BOOL = re.compile(r"(?<![#\w\"-])(?:true|false)(?![\w\"-])")


class KdlEdits:
    def replace(self, text: str, node: Node, value: Any, path: Path) -> list[Splice]:
        start = node.start
        annotation = _ANNOTATION.match(text, start)
        if annotation:
            start = annotation.end()
        quote = _QUOTE.match(text, start)
        if _is_json_text(path):
            value = json.dumps(value)
        return [Splice(start, node.end, _written(text, value, quote[0] if quote else ""))]

    def add(self, text: str, mapping: Node, key: str, value: Any, path: Path) -> list[Splice]:
        if _is_json_text(path):
            value = json.dumps(value)
        name, written = write_key("kdl", key, ""), _written(text, value, "")
        if mapping.style == DOCUMENT:
            return _add_node(text, mapping.end, f"{name} {written}", indent="")
        node: KdlNode = mapping.value
        if node.children is None and (node.properties or _is_inside_line(text, node)):
            return [Splice(node.end, node.end, f" {name}={written}")]
        newline, indent = newline_of(text), indent_at(text, node.start)
        if node.children is None:
            block = f" {{{newline}{indent}    {name} {written}{newline}{indent}}}"
            return [Splice(node.end, node.end, block)]
        if not node.children:
            at = node.children_start + 1
            return [Splice(at, at, f" {name} {written}; ")]
        last = node.children[-1]
        if "\n" not in text[node.children_start : last.start]:
            return [Splice(last.end, last.end, f"; {name} {written}")]
        return _add_node(text, last.end, f"{name} {written}", indent_at(text, last.start))

    def remove(self, text: str, mapping: Node, entry: Entry, path: Path) -> list[Splice]:
        style = entry.node.style
        if style in (NAME, PROPERTY):
            before = len(text[: entry.start].rstrip(" \t"))
            return [Splice(before, entry.end, "")]
        if style == LIST:
            return [_drop_node(text, node.start, node.end) for node in entry.node.value]
        return [_drop_node(text, entry.start, entry.end)]


def _add_node(text: str, at: int, node: str, indent: str) -> list[Splice]:
    end = after_comment(text, at + (text[at : at + 1] == ";"), "kdl")
    if ends_line(text, end, "kdl"):
        return [Splice(end, end, newline_of(text) + indent + node)]
    return [Splice(at, at, f"; {node}")]


def _drop_node(text: str, start: int, end: int) -> Splice:
    if text[end : end + 1] == ";":
        end += 1
    whole_lines = drop_lines(text, start, end, "kdl")
    if whole_lines:
        return whole_lines
    while text[end : end + 1] in (" ", "\t"):
        end += 1
    return Splice(start, end, "")


def _is_inside_line(text: str, node: KdlNode) -> bool:
    """Other nodes stand before it on its line: a block over several lines would look odd there."""
    return bool(text[line_start(text, node.start) : node.start].strip())


def _is_json_text(path: Path) -> bool:
    return len(path) == 3 and path[0] == "user_data" and path[2] == "data"


def _written(text: str, value: Any, quote: str) -> str:
    if isinstance(value, bool) and not quote:
        speaks_kdl_1 = "#true" not in text and "#false" not in text and _OLD_BOOL.search(text)
        quote = "true" if speaks_kdl_1 else ""
    return write_value("kdl", value, "true" if quote in ("true", "false") else quote)
