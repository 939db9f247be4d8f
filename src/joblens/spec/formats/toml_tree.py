"""TOML as it is written: the extent of every table, key and value. The text must be known to be valid."""

import re

from joblens.spec.formats.positions import LIST, Entry, Node, find_entry

# How a mapping is written: the top of the file, [a.b], {inline}, only by dotted keys (a.b = 1), or not at all
# because only tables inside it are.
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
        """The mapping inside a mapping; the last one where it is a list of tables."""
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
