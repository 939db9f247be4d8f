"""TOML reader: plain values from the standard library, and the extent of every table, key and value."""

import datetime as dt
import re
from typing import Any

from joblens.spec.formats.positions import (
    LIST,
    MOST_DEPTH,
    TOO_DEEP,
    Document,
    Entry,
    LineTable,
    Mark,
    Node,
    Positions,
    Problem,
    find_entry,
    is_too_deep,
)


def parse_toml(text: str) -> Document:
    """Parses a text. Never raises for its content: `problems` has all errors."""
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
    return Document(_plain(value), (), lambda: _positions(text))


# Strings and comments, in which brackets have no meaning, and brackets.
_TOKEN = re.compile(
    r'''"""(?:[^"\\]|\\[\s\S]|"(?!""))*"""|\'{3}(?:[^']|'(?!''))*\'{3}|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|#[^\n]*'''
    r"|([\[{])|([\]}])"
)


def _depth_problem(text: str) -> Problem:
    """Returns the position of excessive nesting; the start of the text for dotted keys."""
    depth = 0
    for found in _TOKEN.finditer(text):
        depth += bool(found[1]) - bool(found[2])
        if depth >= MOST_DEPTH:  # the top level is one more
            return Problem(LineTable(text).mark(found.start()), TOO_DEEP)
    return Problem(Mark(1, 1), TOO_DEEP)


def _positions(text: str) -> Positions:

    return Positions(text, toml_tree(text))


def _plain(value: Any) -> Any:
    """Converts dates to text, as in the other formats."""
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
    """Returns the column of a duplicate key, and the message."""
    lines = text.split("\n")
    given = _GIVEN.match(lines[line - 1])
    if given is None:
        return 1, "duplicate key"
    column = len(lines[line - 1]) - len(lines[line - 1].lstrip()) + 1
    message = f"duplicate table '{given[1]}'" if given[1] else f"duplicate key '{given[2]}'"
    for earlier in range(line - 1, 0, -1):
        other = _GIVEN.match(lines[earlier - 1])
        if other is not None and other.groups() == given.groups():
            return column, f"{message}; first defined on line {earlier}"
        if other is not None and other[1] and given[2]:
            break  # another table with keys of its own
    return column, message


# Notation of a mapping: the top of the file, [a.b], {inline}, only by dotted keys (a.b = 1), or implicit
# because only inner tables are written.
ROOT, TABLE, INLINE, DOTTED, IMPLIED = "root", "table", "inline", "dotted", "implied"
WORD = "word"

_BLANK = re.compile(r"(?:[ \t]+)?")
_BLANK_LINES = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_KEY = re.compile(r"""([A-Za-z0-9_-]+)|"((?:[^"\\]|\\.)*)"|'([^']*)'""")
_QUOTED = {
    '"""': re.compile(r'"""(?:[^"\\]|\\[\s\S]|"(?!""))*"""(?:"{0,2})'),
    "'''": re.compile(r"'''(?:[^']|'(?!''))*'''(?:'{0,2})"),
    '"': re.compile(r'"(?:[^"\\]|\\.)*"'),
    "'": re.compile(r"'[^']*'"),
}
_WORD = re.compile(r"\d{4}-\d\d-\d\d \d[^\s,\]}#]*|[^\s,\]}#]+")


def toml_tree(text: str) -> Node:
    return _Growing(text).document()


class _Growing:
    def __init__(self, text: str) -> None:
        self._text = text
        self._root = Node(0, 0, ROOT, [])

    def document(self) -> Node:
        at, table = self._after(_BLANK_LINES, 0), self._root
        while at < len(self._text):
            if self._text.startswith("[", at):
                at, table = self._header(at)
            else:
                at = self._pair(at, table, DOTTED)
                table.end = at
            at = self._after(_BLANK_LINES, at)
        return self._root

    def _header(self, start: int) -> tuple[int, Node]:
        is_list = self._text.startswith("[[", start)
        at, keys = self._dotted_key(self._after(_BLANK, start + 1 + is_list))
        end = self._text.index("]", at) + 1 + is_list
        parent = self._root
        for key, key_at in keys[:-1]:
            parent = self._inner(parent, key, key_at, IMPLIED)
        key, key_at = keys[-1]
        if is_list:
            return end, self._next_table(parent, key, start, end)
        table = self._inner(parent, key, key_at, TABLE)
        table.style, table.start, table.end = TABLE, start, end
        return end, table

    def _next_table(self, parent: Node, key: str, start: int, end: int) -> Node:
        entry = find_entry(parent, key)
        if entry is None:
            entry = _add(parent, Entry(key, start, end, Node(start, end, LIST, [])))
        table = Node(start, end, TABLE, [])
        items = entry.node.entries
        assert items is not None
        items.append(Entry(len(items), start, end, table))
        return table

    def _inner(self, parent: Node, key: str, at: int, style: str) -> Node:
        """Returns the inner mapping; of a list of tables, the last one."""
        entry = find_entry(parent, key)
        if entry is None:
            entry = _add(parent, Entry(key, at, at + len(key), Node(at, at + len(key), style, [])))
        node = entry.node
        if node.style == LIST and node.entries:
            return node.entries[-1].node
        return node

    def _pair(self, at: int, table: Node, style: str) -> int:
        at, keys = self._dotted_key(at)
        value_at = self._after(_BLANK, self._text.index("=", at) + 1)
        value = self._value(value_at)
        for key, key_at in keys[:-1]:
            table = self._inner(table, key, key_at, style)
            table.end = value.end
        key, key_at = keys[-1]
        _add(table, Entry(key, key_at, value.end, value))
        return value.end

    def _dotted_key(self, at: int) -> tuple[int, list[tuple[str, int]]]:
        keys = []
        while True:
            found = _KEY.match(self._text, at)
            assert found is not None  # the text is valid
            keys.append((_key_text(found), at))
            end = self._after(_BLANK, found.end())
            if not self._text.startswith(".", end):
                return end, keys
            at = self._after(_BLANK, end + 1)

    def _value(self, at: int) -> Node:
        text = self._text
        if text[at] == "[":
            return self._list(at)
        if text[at] == "{":
            return self._inline(at)
        for quote, pattern in _QUOTED.items():
            if text.startswith(quote, at):
                return Node(at, self._after(pattern, at), quote)
        return Node(at, self._after(_WORD, at), WORD)

    def _list(self, start: int) -> Node:
        entries: list[Entry] = []
        at = self._after(_BLANK_LINES, start + 1)
        while self._text[at] != "]":
            node = self._value(at)
            entries.append(Entry(len(entries), node.start, node.end, node))
            at = self._after(_BLANK_LINES, node.end)
            if self._text[at] == ",":
                at = self._after(_BLANK_LINES, at + 1)
        return Node(start, at + 1, LIST, entries)

    def _inline(self, start: int) -> Node:
        table = Node(start, start, INLINE, [])
        at = self._after(_BLANK_LINES, start + 1)
        while self._text[at] != "}":
            at = self._after(_BLANK_LINES, self._pair(at, table, INLINE))
            if self._text[at] == ",":
                at = self._after(_BLANK_LINES, at + 1)
        table.end = at + 1
        return table

    def _after(self, pattern: "re.Pattern[str]", at: int) -> int:
        found = pattern.match(self._text, at)
        assert found is not None  # the text is valid
        return found.end()


def _add(parent: Node, entry: Entry) -> Entry:
    assert parent.entries is not None
    parent.entries.append(entry)
    return entry


def _key_text(found: "re.Match[str]") -> str:
    bare, basic, literal = found.groups()
    if basic is not None and "\\" in basic:
        import tomllib

        return next(iter(tomllib.loads(found[0] + "=0")))
    return bare or basic or literal or ""
