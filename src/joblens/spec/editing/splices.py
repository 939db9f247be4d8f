"""Splices of a text: lines and comments, entries in braces, and literals in each format's quotes."""

import math
import re
from typing import Any

from msgspec import Struct

from joblens.model.errors import InputError
from joblens.spec.formats.positions import Entry, Node
from joblens.spec.formats.yaml_reader import plain_value


class Splice(Struct, frozen=True):
    """Replaces the text between two offsets by `new`."""

    start: int
    end: int
    new: str


COMMENTS = {
    "json": re.compile(r"(?!)"),
    "json5": re.compile(r"//[^\n\r]*|/\*(?:[^*]|\*(?!/))*\*/"),
    "kdl": re.compile(r"//[^\n\r]*|/\*(?:[^*]|\*(?!/))*\*/"),
    "toml": re.compile(r"#[^\n\r]*"),
    "yaml": re.compile(r"#[^\n\r]*"),
}


def apply_splices(text: str, splices: list[Splice]) -> str:
    parts: list[str] = []
    at = 0
    for splice in sorted(splices, key=lambda one: (one.start, one.end)):
        parts += [text[at : splice.start], splice.new]
        at = max(at, splice.end)
    return "".join([*parts, text[at:]])


def newline_of(text: str) -> str:
    """Returns the line ending of the first line."""
    first = text.find("\n")
    return "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"


def line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def line_end(text: str, at: int) -> int:
    """Returns the offset before the line break."""
    end = text.find("\n", at)
    end = len(text) if end < 0 else end
    return end - 1 if end > at and text[end - 1] == "\r" else end


def after_line(text: str, at: int) -> int:
    """Returns the offset after the line break."""
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1


def indent_at(text: str, at: int) -> str:
    """Returns the indentation of the line at an offset."""
    start = line_start(text, at)
    line = text[start : line_end(text, start)].removeprefix("\ufeff")
    return line[: len(line) - len(line.lstrip(" \t"))]


def begins_line(text: str, at: int) -> bool:
    """Returns whether only blanks precede it on its line."""
    return not text[line_start(text, at) : at].strip(" \t")


def after_comment(text: str, at: int, format: str) -> int:  # noqa: A002
    """Returns the end of the blanks and comments that follow on the same line.

    A multi-line comment belongs to what comes next.
    """
    end = at
    while True:
        while text[end : end + 1] in (" ", "\t"):
            end += 1
        found = COMMENTS[format].match(text, end)
        if not found or "\n" in found[0]:
            return end
        end = found.end()


def ends_line(text: str, at: int, format: str) -> bool:  # noqa: A002
    """Returns whether only blanks and comments follow on the line."""
    end = after_comment(text, at, format)
    return end >= len(text) or text[end] in "\r\n"


def drop_lines(text: str, start: int, end: int, format: str) -> Splice | None:  # noqa: A002
    """Removes the lines it is on, with a trailing comment. None: it shares them."""
    if begins_line(text, start) and ends_line(text, end, format):
        return Splice(line_start(text, start), after_line(text, end), "")
    return None


_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}
_YAML_PLAIN = re.compile(r"[A-Za-z0-9_/][A-Za-z0-9_./+%@=-]*(?: [A-Za-z0-9_./+%@=-]+)*")
_YAML_1_1_WORDS = frozenset({"yes", "no", "on", "off", "y", "n"})
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BARE_WORD = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")


def write_value(format: str, value: Any, quote: str) -> str:  # noqa: A002
    """Formats a value; `quote`: the opening quote of the old value, or of a neighbour."""
    if isinstance(value, str):
        return _write_text(format, value, quote)
    if isinstance(value, bool):
        word = "true" if value else "false"
        return f"#{word}" if format == "kdl" and quote != "true" else word
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else _write_unbounded(format, value)
    raise InputError(f"only text, numbers, true and false can be written into a file, not {value!r}")


def write_key(format: str, key: str, quote: str) -> str:  # noqa: A002
    match format:
        case "json":
            return _escaped(key, '"', format)
        case "json5":
            is_bare = not quote and _BARE_WORD.fullmatch(key)
            return key if is_bare else _escaped(key, quote or "'", format)
        case "yaml":
            is_bare = not quote and _YAML_PLAIN.fullmatch(key)
            return key if is_bare else _escaped(key, '"', format)
        case "kdl":
            return key if _BARE_WORD.fullmatch(key) and key not in _KDL_WORDS else _escaped(key, '"', format)
    return key if _BARE_KEY.fullmatch(key) else _escaped(key, '"', format)


_KDL_WORDS = frozenset({"true", "false", "null", "inf", "nan"})


def _write_text(format: str, text: str, quote: str) -> str:  # noqa: A002
    is_printable = all(map(_is_printable, text))
    if format == "yaml":
        if not quote and _is_yaml_plain(text):
            return text
        if quote == "'" and is_printable:
            return "'" + text.replace("'", "''") + "'"
    elif format == "json5" and quote == "'":
        return _escaped(text, "'", format)
    elif format == "toml" and quote == "'" and is_printable and "'" not in text:
        return f"'{text}'"
    elif format == "kdl" and quote.endswith('"') and len(quote.rstrip('"')) and is_printable:
        closing = '"' + "#" * quote.count("#")
        if quote.count('"') == 1 and closing not in text + closing[:-1] and not text.startswith('""'):
            return quote + text + closing
    return _escaped(text, '"', format)


def _is_yaml_plain(text: str) -> bool:
    if not _YAML_PLAIN.fullmatch(text) or text.lower() in _YAML_1_1_WORDS:
        return False
    return isinstance(plain_value(text), str)


def _is_printable(character: str) -> bool:
    return character == " " or (character.isprintable() and character != "\ufeff")


def _escaped(text: str, quote: str, format: str) -> str:  # noqa: A002
    inside = "".join(
        f"\\{character}"
        if character == quote
        else _SHORT.get(character) or (character if _is_printable(character) else _code(character, format))
        for character in text
    )
    return quote + inside + quote


def _code(character: str, format: str) -> str:  # noqa: A002
    number = ord(character)
    if format == "kdl":
        return f"\\u{{{number:x}}}"
    if number <= 0xFFFF:
        return f"\\u{number:04x}"
    if format in ("yaml", "toml"):
        return f"\\U{number:08x}"
    high, low = divmod(number - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


def _write_unbounded(format: str, value: float) -> str:  # noqa: A002
    sign = "-" if value < 0 else ""
    word = "nan" if math.isnan(value) else "inf"
    match format:
        case "yaml":
            return f"{sign}.{word}"
        case "toml":
            return sign + word
        case "kdl":
            return f"#{sign}{word}"
        case "json5":
            return "NaN" if word == "nan" else f"{sign}Infinity"
    raise InputError(f"{value} cannot be written in JSON")


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
    index = entries.index(entry)
    if comma is None and index:  # the last entry: its preceding comma goes too
        before = _comma_after(text, format, entries[index - 1].end)
        assert before is not None  # between two entries
        splices.append(Splice(before, before + 1, ""))
    return splices


def _drop_inside(text: str, start: int, end: int) -> Splice:
    """Removes the blanks before it at the end, behind it elsewhere, so that one gap remains."""
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
        assert found is not None  # also matches the empty string
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
