"""Edits of each format: JSON, TOML, YAML and KDL."""

import json
import re
from typing import Any

from joblens.model.errors import InputError
from joblens.spec.editing.splices import (
    Splice,
    add_to_braces,
    after_comment,
    after_line,
    begins_line,
    drop_lines,
    ends_line,
    indent_at,
    line_end,
    line_start,
    newline_of,
    remove_from_braces,
    write_key,
    write_value,
)
from joblens.spec.formats.kdl_reader import KdlNode
from joblens.spec.formats.kdl_workflow import DOCUMENT, NAME, PROPERTY
from joblens.spec.formats.positions import LIST, Entry, Node, Path
from joblens.spec.formats.toml_reader import DOTTED, IMPLIED, INLINE, ROOT, TABLE
from joblens.spec.formats.yaml_reader import ALIAS, FLOW, FOLDED, LITERAL


class JsonEdits:
    def __init__(self, format: str) -> None:  # noqa: A002
        self._format = format

    def replace(self, text: str, node: Node, value: Any, path: Path) -> list[Splice]:
        return [Splice(node.start, node.end, write_value(self._format, value, node.style))]

    def add(self, text: str, mapping: Node, key: str, value: Any, path: Path) -> list[Splice]:
        return add_to_braces(text, self._format, mapping, key, value)

    def remove(self, text: str, mapping: Node, entry: Entry, path: Path) -> list[Splice]:
        return remove_from_braces(text, self._format, mapping, entry)


class TomlEdits:
    def replace(self, text: str, node: Node, value: Any, path: Path) -> list[Splice]:
        return [Splice(node.start, node.end, write_value("toml", value, node.style))]

    def add(self, text: str, mapping: Node, key: str, value: Any, path: Path) -> list[Splice]:
        entries, newline = mapping.entries or [], newline_of(text)
        if mapping.style == INLINE:
            if text[mapping.start] != "{":
                raise InputError("it is written by dotted keys inside an inline table")
            return add_to_braces(text, "toml", mapping, key, value)
        values = [entry.node for entry in entries if entry.node.entries is None]
        pair = (
            f"{write_key('toml', key, '')} = {write_value('toml', value, values[-1].style if values else '')}"
        )
        if mapping.style == IMPLIED:
            header = ".".join(write_key("toml", word, "") for word in path[:-1] if isinstance(word, str))
            at = line_start(text, entries[0].start)
            return [Splice(at, at, f"[{header}]{newline}{pair}{newline}{newline}")]
        if mapping.style == ROOT and mapping.end == 0:
            at = 1 if text.startswith("\ufeff") else 0
            return [Splice(at, at, pair + newline)]
        prefix = ""
        if mapping.style == DOTTED:
            last = entries[-1]
            prefix = text[line_start(text, last.start) : last.start].removeprefix("\ufeff").lstrip(" \t")
        at = line_end(text, mapping.end)
        return [Splice(at, at, newline + indent_at(text, _line_of(mapping)) + prefix + pair)]

    def remove(self, text: str, mapping: Node, entry: Entry, path: Path) -> list[Splice]:
        if mapping.style == INLINE:
            return remove_from_braces(text, "toml", mapping, entry)
        if _has_header(entry.node):
            raise InputError("it is a table of its own")
        if mapping.style == DOTTED and mapping.entries == [entry]:  # a table without keys must still be named
            dot = text.rindex(".", line_start(text, entry.start), entry.start)
            return [Splice(dot, entry.end, " = {}")]
        return [Splice(line_start(text, entry.start), after_line(text, entry.end), "")]


def _has_header(node: Node) -> bool:
    if node.style == LIST:
        return any(item.node.style == TABLE for item in node.entries or ())
    return node.style in (TABLE, IMPLIED, DOTTED)


def _line_of(mapping: Node) -> int:
    """Returns the start of the line whose indentation a new line takes: the last pair's, or the header's."""
    pairs = [entry for entry in mapping.entries or () if entry.end <= mapping.end]
    return pairs[-1].start if pairs else mapping.start


_PROPERTIES = re.compile(r"(?:[&!]\S*(?:\s+|$))+")
_QUOTES = ("'", '"')


class YamlEdits:
    def replace(self, text: str, node: Node, value: Any, path: Path) -> list[Splice]:
        start, end = node.start, _end(text, node)
        written = write_value("yaml", value, node.style if node.style in _QUOTES else "")
        properties = None if node.style == ALIAS else _PROPERTIES.match(text[start:end])
        if properties:  # an anchor stays; a tag described the old value
            anchors = [word for word in properties[0].split() if word.startswith("&")]
            written = " ".join([*anchors, written])
        if start == end and text[start - 1 : start] in (":", "-", "?"):
            written = " " + written
        return [Splice(start, end, written)]

    def add(self, text: str, mapping: Node, key: str, value: Any, path: Path) -> list[Splice]:
        if mapping.style == ALIAS:
            raise InputError("it is an alias of something written elsewhere")
        if mapping.style == FLOW:
            return add_to_braces(text, "yaml", mapping, key, value)
        entries = mapping.entries
        assert entries  # an empty block is not a mapping
        last = entries[-1]
        style = last.node.style if last.node.style in _QUOTES else ""
        indent = " " * (last.start - line_start(text, last.start))
        line = indent + write_key("yaml", key, "") + ": " + write_value("yaml", value, style)
        leaf = _last_leaf(last.node)
        if leaf.style in (LITERAL, FOLDED) and _keeps_blank_lines(text, leaf):
            at = leaf.end
            before = "" if text[at - 1 : at] == "\n" else newline_of(text)
            return [Splice(at, at, before + line + newline_of(text))]
        at = line_end(text, _end(text, leaf))
        return [Splice(at, at, newline_of(text) + line)]

    def remove(self, text: str, mapping: Node, entry: Entry, path: Path) -> list[Splice]:
        if mapping.style == ALIAS:
            raise InputError("it is an alias of something written elsewhere")
        if mapping.style == FLOW:
            return remove_from_braces(text, "yaml", mapping, entry)
        end = _end(text, _last_leaf(entry.node))
        if mapping.entries == [entry]:
            return [Splice(entry.start, end, "{}")]
        if begins_line(text, entry.start):
            return [Splice(line_start(text, entry.start), after_line(text, end), "")]
        # The first key follows a dash: the next one moves up to it.
        follows = re.compile(r"\s*").match(text, after_line(text, end))
        assert follows is not None  # also matches the empty string
        return [Splice(entry.start, follows.end(), "")]


def _last_leaf(node: Node) -> Node:
    while node.entries and node.style not in (FLOW, ALIAS):
        node = node.entries[-1].node
    return node


def _end(text: str, node: Node) -> int:
    """Returns the end of a block text: its own last line, not the start of the next node."""
    if node.style in (LITERAL, FOLDED):
        return node.start + len(text[node.start : node.end].rstrip())
    return node.end


def _keeps_blank_lines(text: str, node: Node) -> bool:
    return "+" in text[node.start : line_end(text, node.start)].partition("#")[0]


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
    """Returns whether other nodes precede it on its line, where a multi-line block would be odd."""
    return bool(text[line_start(text, node.start) : node.start].strip())


def _is_json_text(path: Path) -> bool:
    return len(path) == 3 and path[0] == "user_data" and path[2] == "data"


def _written(text: str, value: Any, quote: str) -> str:
    if isinstance(value, bool) and not quote:
        speaks_kdl_1 = "#true" not in text and "#false" not in text and _OLD_BOOL.search(text)
        quote = "true" if speaks_kdl_1 else ""
    return write_value("kdl", value, "true" if quote in ("true", "false") else quote)
