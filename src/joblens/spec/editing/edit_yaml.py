"""Edits of YAML: a scalar, or a line more or less in a block."""

import re
from typing import Any

from joblens.model.errors import InputError
from joblens.spec.editing.edit_flow import add_to_braces, remove_from_braces
from joblens.spec.editing.edit_lines import Splice, after_line, begins_line, line_end, line_start, newline_of
from joblens.spec.formats.literals import write_key, write_value
from joblens.spec.formats.positions import Entry, Node, Path
from joblens.spec.formats.yaml_tree import ALIAS, FLOW, FOLDED, LITERAL

_PROPERTIES = re.compile(r"(?:[&!]\S*(?:\s+|$))+")
_QUOTES = ("'", '"')


class YamlEdits:
    def replace(self, text: str, node: Node, value: Any, path: Path) -> list[Splice]:
        start, end = node.start, _end(text, node)
        written = write_value("yaml", value, node.style if node.style in _QUOTES else "")
        properties = None if node.style == ALIAS else _PROPERTIES.match(text[start:end])
        if properties:  # an anchor stays, a tag said what the old value was
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
        # The first key stands behind a dash: what follows moves up to it.
        follows = re.compile(r"\s*").match(text, after_line(text, end))
        assert follows is not None  # it matches nothing as well
        return [Splice(entry.start, follows.end(), "")]


def _last_leaf(node: Node) -> Node:
    while node.entries and node.style not in (FLOW, ALIAS):
        node = node.entries[-1].node
    return node


def _end(text: str, node: Node) -> int:
    """A text in a block reaches to where the next thing begins; its own end is its last line's."""
    if node.style in (LITERAL, FOLDED):
        return node.start + len(text[node.start : node.end].rstrip())
    return node.end


def _keeps_blank_lines(text: str, node: Node) -> bool:
    return "+" in text[node.start : line_end(text, node.start)].partition("#")[0]
