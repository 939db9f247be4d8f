"""TOML into plain values by the standard library; `toml_tree` says where everything stands, when asked."""

import datetime as dt
import re
from typing import Any

from joblens.spec.formats.positions import (
    MOST_DEPTH,
    TOO_DEEP,
    Document,
    LineTable,
    Mark,
    Places,
    Problem,
    is_too_deep,
)


def parse_toml(text: str) -> Document:
    """Never raises for what the text says: whatever is wrong stands in `problems`."""
    import tomllib

    text = " " + text[1:] if text.startswith("\ufeff") else text
    try:
        value = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return Document(None, (_syntax_problem(str(error), text),))
    except RecursionError:
        return Document(None, (_depth_problem(text),))
    except ValueError as error:
        return Document(None, (Problem(Mark(1, 1), f"not valid TOML: {error}"),))
    if is_too_deep(value):
        return Document(None, (_depth_problem(text),))
    return Document(_plain(value), (), lambda: _places(text))


# Texts and comments, in which brackets mean nothing, and brackets.
_TOKEN = re.compile(
    r'''"""(?:[^"\\]|\\[\s\S]|"(?!""))*"""|\'{3}(?:[^']|'(?!''))*\'{3}|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|#[^\n]*'''
    r"|([\[{])|([\]}])"
)


def _depth_problem(text: str) -> Problem:
    """Where the brackets are too many; the beginning, where it is dotted keys that are."""
    depth = 0
    for found in _TOKEN.finditer(text):
        depth += bool(found[1]) - bool(found[2])
        if depth >= MOST_DEPTH:  # the top is one more
            return Problem(LineTable(text).mark(found.start()), TOO_DEEP)
    return Problem(Mark(1, 1), TOO_DEEP)


def _places(text: str) -> Places:
    from joblens.spec.formats.toml_tree import toml_tree

    return Places(text, toml_tree(text))


def _plain(value: Any) -> Any:
    """Dates become the text they are in the other formats."""
    match value:
        case dict():
            return {key: _plain(inner) for key, inner in value.items()}
        case list():
            return [_plain(inner) for inner in value]
        case dt.date() | dt.time():  # a datetime is a date
            return value.isoformat()
    return value


def _syntax_problem(message: str, text: str) -> Problem:
    found = re.fullmatch(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", message, re.DOTALL)
    if found is None:
        return Problem(Mark(1, 1), f"not valid TOML: {message}")
    mark = Mark(int(found[2]), int(found[3])) if found[2] else LineTable(text).mark(len(text))
    reason = found[1]
    if "overwrite" in reason or "Cannot declare" in reason or "Duplicate" in reason:
        column, message = _double(text, mark.line)
        return Problem(Mark(mark.line, column), f"not valid TOML: {message}")
    return Problem(mark, f"not valid TOML: {reason[:1].lower()}{reason[1:]}")


_GIVEN = re.compile(r"\s*(?:\[+\s*([^]]*?)\s*\]|([^=#]+?)\s*=)")


def _double(text: str, line: int) -> tuple[int, str]:
    """The column of what stands twice, and what is said about it."""
    lines = text.split("\n")
    given = _GIVEN.match(lines[line - 1])
    if given is None:
        return 1, "a key stands twice"
    column = len(lines[line - 1]) - len(lines[line - 1].lstrip()) + 1
    message = f"table '{given[1]}' stands twice" if given[1] else f"key '{given[2]}' stands twice"
    for earlier in range(line - 1, 0, -1):
        other = _GIVEN.match(lines[earlier - 1])
        if other is not None and other.groups() == given.groups():
            return column, f"{message}; it was first given on line {earlier}"
        if other is not None and other[1] and given[2]:
            break  # another table: its keys are others
    return column, message
