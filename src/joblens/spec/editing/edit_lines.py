"""Parts of a text that edits of every format look at: lines, their ends, and the comments at their ends."""

import re

from msgspec import Struct


class Splice(Struct, frozen=True):
    """Puts `new` in place of what stands between two offsets."""

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
    """As the first line ends, so do new ones."""
    first = text.find("\n")
    return "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"


def line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def line_end(text: str, at: int) -> int:
    """Before the line break."""
    end = text.find("\n", at)
    end = len(text) if end < 0 else end
    return end - 1 if end > at and text[end - 1] == "\r" else end


def after_line(text: str, at: int) -> int:
    """After the line break."""
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1


def indent_at(text: str, at: int) -> str:
    """The blanks with which the line of an offset begins."""
    start = line_start(text, at)
    line = text[start : line_end(text, start)].removeprefix("\ufeff")
    return line[: len(line) - len(line.lstrip(" \t"))]


def begins_line(text: str, at: int) -> bool:
    """Nothing but blanks stands before it on its line."""
    return not text[line_start(text, at) : at].strip(" \t")


def after_comment(text: str, at: int, format: str) -> int:  # noqa: A002
    """Where the blanks and comments that follow on the same line end; a comment over several lines counts as
    what comes next."""
    end = at
    while True:
        while text[end : end + 1] in (" ", "\t"):
            end += 1
        found = COMMENTS[format].match(text, end)
        if not found or "\n" in found[0]:
            return end
        end = found.end()


def ends_line(text: str, at: int, format: str) -> bool:  # noqa: A002
    """Nothing but blanks and comments follows on the line."""
    end = after_comment(text, at, format)
    return end >= len(text) or text[end] in "\r\n"


def drop_lines(text: str, start: int, end: int, format: str) -> Splice | None:  # noqa: A002
    """Takes out the whole lines something stands on, with the comment behind it. None: it shares them."""
    if begins_line(text, start) and ends_line(text, end, format):
        return Splice(line_start(text, start), after_line(text, end), "")
    return None
