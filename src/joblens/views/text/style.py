"""Output style: terminal colour and width, and the head of HTML pages."""

import re
import unicodedata
from collections.abc import Iterable

from msgspec import Struct

from joblens.model.jobs.job import Severity, Status

_CODES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")
_LEAST_TITLE = 4  # columns; a shorter beginning says nothing
_LINE_END = "⏎"  # a command may be a whole script

STATUS_COLOURS = {
    Status.QUEUED: "blue",
    Status.RUNNING: "cyan",
    Status.SUCCESS: "green",
    Status.FAILED: "red",
    Status.TIMEOUT: "yellow",
    Status.ERROR: "red",
    Status.CANCELLED: "magenta",
    Status.MEASURED: "blue",
    Status.LOST: "red",
}
SEVERITY_COLOURS = {Severity.INFO: "blue", Severity.WARNING: "yellow", Severity.PROBLEM: "red"}
SEVERITY_MARKS = {Severity.INFO: "·", Severity.WARNING: "!", Severity.PROBLEM: "✗"}


class Palette(Struct, frozen=True):
    """Paints text, or returns it unchanged without colours."""

    is_on: bool

    def paint(self, text: str, *styles: str) -> str:
        if not self.is_on or not text:
            return text
        return f"\x1b[{';'.join(_CODES[style] for style in styles)}m{text}\x1b[0m"

    def status(self, status: Status, text: str = "") -> str:
        return self.paint(text or status.value, STATUS_COLOURS[status])

    def severity(self, severity: Severity, text: str) -> str:
        return self.paint(text, SEVERITY_COLOURS[severity])


PLAIN = Palette(is_on=False)


def clean(text: str) -> str:
    """Returns one line without control characters, because names and arguments are untrusted."""
    text = text.replace("\r\n", _LINE_END).replace("\n", _LINE_END).replace("\t", " ")
    return _CONTROL.sub("�", text)


def clean_lines(text: str) -> list[str]:
    """Returns lines of a job's output without terminal control sequences and colours."""
    plain = _ANSI.sub("", text).replace("\t", "    ")
    # Progress bars redraw their line with carriage returns: only the last state is kept.
    return [clean(line.rstrip("\r").rpartition("\r")[2]) for line in plain.split("\n")]


def clean_text(text: str) -> str:
    """Returns lines without terminal control, for messages that quote paths and files."""
    return "\n".join(clean(line) for line in _ANSI.sub("", text).split("\n"))


def visible_width(text: str) -> int:
    bare = _ANSI.sub("", text)
    if bare.isascii():
        return len(bare)
    return sum(_character_width(character) for character in bare)


def _character_width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def fit(text: str, width: int) -> str:
    """Truncates text without colour to `width` columns, with an ellipsis."""
    if visible_width(text) <= width:
        return text
    if width <= 0:
        return ""
    characters, used = [], 0
    for character in text:
        used += _character_width(character)
        if used > width - 1:
            break
        characters.append(character)
    return "".join(characters) + "…"


def fit_middle(text: str, width: int) -> str:
    """Shortens a text in its middle: names of one sweep differ at their ends."""
    if visible_width(text) <= width or width < 3:
        return fit(text, width)
    head = fit(text, (width + 1) // 2)
    tail, columns_left = "", width - visible_width(head)
    for character in reversed(text):
        columns_left -= _character_width(character)
        if columns_left < 0:
            break
        tail = character + tail
    return head + tail


def pad(text: str, width: int) -> str:
    return text + " " * (width - visible_width(text))


def pad_left(text: str, width: int) -> str:
    return " " * (width - visible_width(text)) + text


def fold(text: str, width: int) -> list[str]:
    """Breaks text into lines of `width` columns, at least 20, without losing anything."""
    lines, used = [""], 0
    for character in text:
        columns = _character_width(character)
        if used + columns > max(20, width):
            lines.append("")
            used = 0
        lines[-1] += character
        used += columns
    return lines


def wrap(text: str, width: int, indent: str = "") -> list[str]:
    """Wraps text at `width` columns; longer words stay whole."""
    lines: list[str] = []
    line = ""
    for word in text.split():
        candidate = f"{line} {word}" if line else word
        if line and visible_width(indent) + visible_width(candidate) > width:
            lines.append(indent + line)
            line = word
        else:
            line = candidate
    return [*lines, indent + line] if line else lines


def wrap_beside(head: str, text: str, width: int, indent: str = "") -> list[str]:
    """Wraps text beside `head`. Further lines have the indentation, or else begin below the first word."""
    indent = indent or " " * visible_width(head)
    first, *others = wrap(text, width, indent) or [indent]
    return [f"{head}{first[len(indent) :]}".rstrip(), *others]


def title_line(
    options: Iterable[tuple[str, str]], status: str, colour: str, width: int, paint: Palette
) -> str:
    """Returns 'title  status  rest' with the first (title, rest) that fits; else the last title, shortened,
    or only the status."""
    title = rest = ""
    for title, rest in options:
        if visible_width(title) + visible_width(status) + visible_width(rest) + 4 <= width:
            break
    else:
        title, rest = fit(title, width - visible_width(status) - 2), ""
        title = title if visible_width(title) >= _LEAST_TITLE else ""
    parts = (paint.paint(title, "bold"), paint.paint(fit(status, width), colour), paint.paint(rest, "dim"))
    return "  ".join(part for part in parts if part)


PAGE_HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="joblens">
<title>{title}</title>
"""
