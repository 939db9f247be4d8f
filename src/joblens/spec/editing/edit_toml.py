"""Edits of TOML: a scalar, or a line more or less in a table."""

from typing import Any

from joblens.model.errors import InputError
from joblens.spec.editing.edit_flow import add_to_braces, remove_from_braces
from joblens.spec.editing.edit_lines import Splice, after_line, indent_at, line_end, line_start, newline_of
from joblens.spec.formats.literals import write_key, write_value
from joblens.spec.formats.positions import LIST, Entry, Node, Path
from joblens.spec.formats.toml_tree import DOTTED, IMPLIED, INLINE, ROOT, TABLE


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
    """Where the line begins whose indentation a new one takes: the last pair's, or the header's."""
    pairs = [entry for entry in mapping.entries or () if entry.end <= mapping.end]
    return pairs[-1].start if pairs else mapping.start
