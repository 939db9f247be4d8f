"""Entries of mappings written in braces: JSON, JSON5, YAML's flow form and TOML's inline tables."""

import re
from typing import Any

from joblens.spec.editing.edit_lines import (
    COMMENTS,
    Splice,
    after_comment,
    begins_line,
    drop_lines,
    ends_line,
    indent_at,
    newline_of,
)
from joblens.spec.formats.literals import write_key, write_value
from joblens.spec.formats.positions import Entry, Node

_BLANK = re.compile(r"\s*")


def add_to_braces(text: str, format: str, mapping: Node, key: str, value: Any) -> list[Splice]:  # noqa: A002
    entries = mapping.entries
    if not entries:
        inside = mapping.start + text[mapping.start : mapping.end].index("{") + 1
        pair = _pair(format, key, value, "", '"' if format != "yaml" else "")
        return [Splice(inside, inside, pair)]
    last = entries[-1]
    pair = _pair_beside(text, format, last, key, value)
    before = entries[-2].end if len(entries) > 1 else mapping.start + 1
    comma = _comma_after(text, format, last.end)
    end = after_comment(text, last.end if comma is None else comma + 1, format)
    is_on_lines = "\n" in text[before : last.start] and ends_line(text, end, format)
    if not is_on_lines:
        gap = text[before : last.start].partition(",")[2] if len(entries) > 1 else " "
        return [Splice(last.end, last.end, "," + (gap if not gap.strip(" ") else " ") + pair)]
    line = newline_of(text) + indent_at(text, last.start) + pair
    if comma is not None:
        return [Splice(end, end, line + ",")]
    return [Splice(last.end, last.end, ","), Splice(end, end, line)]


def remove_from_braces(text: str, format: str, mapping: Node, entry: Entry) -> list[Splice]:  # noqa: A002
    entries = mapping.entries or []
    comma = _comma_after(text, format, entry.end)
    end = entry.end if comma is None else comma + 1
    splices = [drop_lines(text, entry.start, end, format) or _drop_inside(text, entry.start, end)]
    place = entries.index(entry)
    if comma is None and place:  # the last one: the comma before it has nothing to divide any more
        before = _comma_after(text, format, entries[place - 1].end)
        assert before is not None  # it stands between two entries
        splices.append(Splice(before, before + 1, ""))
    return splices


def _drop_inside(text: str, start: int, end: int) -> Splice:
    """With the blanks before it where nothing follows, behind it otherwise: one gap is left, not two."""
    while text[end : end + 1] in (" ", "\t"):
        end += 1
    if text[end : end + 1] in ("}", "\n", "\r") and not begins_line(text, start):
        end = len(text[:end].rstrip(" \t")) if text[end] == "}" else end
        while text[start - 1] in " \t" and text[end : end + 1] != "":
            start -= 1
    return Splice(start, end, "")


def _comma_after(text: str, format: str, at: int) -> int | None:  # noqa: A002
    while True:
        found = _BLANK.match(text, at)
        assert found is not None  # it matches nothing as well
        at = found.end()
        comment = COMMENTS[format].match(text, at)
        if comment is None:
            return at if text[at : at + 1] == "," else None
        at = comment.end()


def _pair_beside(text: str, format: str, sibling: Entry, key: str, value: Any) -> str:  # noqa: A002
    first = text[sibling.start]
    key_quote = first if first in "\"'" else ""
    style = sibling.node.style
    value_quote = style if sibling.node.entries is None and style in ('"', "'") else ""
    is_tight = text[sibling.node.start - 1] == ":" and format != "yaml"
    pair = _pair(format, key, value, key_quote, value_quote)
    return pair.replace(": ", ":", 1) if is_tight else pair


def _pair(format: str, key: str, value: Any, key_quote: str, value_quote: str) -> str:  # noqa: A002
    divider = " = " if format == "toml" else ": "
    return write_key(format, key, key_quote) + divider + write_value(format, value, value_quote)
