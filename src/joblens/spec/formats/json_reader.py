"""JSON and JSON5 reader: plain values, and the extent of every node."""

import re
from collections.abc import Callable
from typing import Any

from joblens.spec.formats.positions import (
    LIST,
    MOST_DEPTH,
    TOO_DEEP,
    Document,
    Entry,
    LineTable,
    Node,
    Positions,
    Problem,
    ReadingError,
    is_too_deep,
    value_of,
)

# Notation of a node: mapping, list, a bare word (true, null, a number), or a string by its quote.
MAPPING, WORD = "mapping", "word"

_BLANK = re.compile(r"[ \t\n\r]*")
_BLANK_5 = re.compile(r"(?:[\s\ufeff]+|//[^\n\r\u2028\u2029]*|/\*(?:[^*]|\*(?!/))*\*/)*")
_TEXT = re.compile(r'"((?:[^"\\\x00-\x1f]|\\.)*)"')
_TEXTS_5 = {
    '"': re.compile(r'"((?:[^"\\\n\r]|\\(?:\r\n|[\s\S]))*)"'),
    "'": re.compile(r"'((?:[^'\\\n\r]|\\(?:\r\n|[\s\S]))*)'"),
}
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_NUMBER_5 = re.compile(
    r"[-+]?(?:0[xX][0-9a-fA-F]+|(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|Infinity|NaN)"
)
_NAME_5 = re.compile(r"(?:[^\W\d]|[$_]|\\u[0-9a-fA-F]{4})(?:[\w$\u200c\u200d]|\\u[0-9a-fA-F]{4})*")
_RUN = re.compile(r"[^\s,:\[\]{}\"']+")
_WORD_END = re.compile(r"[\w$.+-]")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(\r\n|[\s\S]))")
_SHORT = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0"}
_WORDS = {"true": True, "false": False, "null": None}
_LINE_ENDS = frozenset({"\n", "\r", "\r\n", "\u2028", "\u2029"})


def json_tree(text: str, *, is_json5: bool) -> tuple[Node | None, list[ReadingError]]:
    """Returns the tree (None: unreadable) and all problems."""
    growing = _Growing(text, is_json5=is_json5)
    try:
        return growing.document(), growing.errors
    except ReadingError as error:
        if error.message != TOO_DEEP:
            error.message = f"not valid {'JSON5' if is_json5 else 'JSON'}: {error.message}"
        return None, [*growing.errors, error]


class _Growing:
    def __init__(self, text: str, *, is_json5: bool) -> None:
        self.errors: list[ReadingError] = []
        self._text = text
        self._is_json5 = is_json5
        self._skip = (_BLANK_5 if is_json5 else _BLANK).match

    def document(self) -> Node:
        node = self._value(self._blank(0), 0)
        end = self._blank(node.end)
        if end < len(self._text):
            raise ReadingError(end, f"{self._shown(end)} after the end of the document")
        return node

    def _blank(self, at: int) -> int:
        found = self._skip(self._text, at)
        assert found is not None  # also matches the empty string
        end = found.end()
        if not self._is_json5 and self._text[end : end + 2] in ("//", "/*"):
            raise ReadingError(end, "comments need JSON5 (a file called .json5)")
        return end

    def _value(self, at: int, depth: int) -> Node:
        match self._text[at : at + 1]:
            case "{" | "[" as bracket:
                if depth >= MOST_DEPTH:
                    raise ReadingError(at, TOO_DEEP)
                return self._mapping(at, depth) if bracket == "{" else self._list(at, depth)
            case '"' | "'" as quote:
                end, value = self._quoted(at)
                return Node(at, end, quote, None, value)
            case "":
                raise ReadingError(at, "the text ends where a value is expected")
        return self._bare(at)

    def _mapping(self, start: int, depth: int) -> Node:
        text = self._text
        entries: list[Entry] = []
        first_offsets: dict[str, int] = {}
        at = self._blank(start + 1)
        while text[at : at + 1] != "}":
            key_at, (at, key) = at, self._key(at)
            at = self._blank(at)
            if text[at : at + 1] != ":":
                raise ReadingError(at, f"expected ':' after the key '{key}', not {self._shown(at)}")
            node = self._value(self._blank(at + 1), depth + 1)
            if key in first_offsets:
                line = text.count("\n", 0, first_offsets[key]) + 1
                message = f"duplicate key '{key}'; first defined on line {line}"
                self.errors.append(ReadingError(key_at, message, key))
            else:
                first_offsets[key] = key_at
                entries.append(Entry(key, key_at, node.end, node))
            at = self._next(node.end, "}")
        return Node(start, at + 1, MAPPING, entries)

    def _list(self, start: int, depth: int) -> Node:
        entries: list[Entry] = []
        at = self._blank(start + 1)
        while self._text[at : at + 1] != "]":
            node = self._value(at, depth + 1)
            entries.append(Entry(len(entries), node.start, node.end, node))
            at = self._next(node.end, "]")
        return Node(start, at + 1, LIST, entries)

    def _next(self, at: int, closing: str) -> int:
        """Returns the start of the next entry, or the position of the closing bracket."""
        at = self._blank(at)
        if self._text[at : at + 1] == closing:
            return at
        if self._text[at : at + 1] != ",":
            raise ReadingError(at, f"expected ',' or '{closing}', not {self._shown(at)}")
        comma, at = at, self._blank(at + 1)
        if self._text[at : at + 1] == closing and not self._is_json5:
            raise ReadingError(comma, f"a comma before '{closing}' needs JSON5 (a file called .json5)")
        return at

    def _key(self, at: int) -> tuple[int, str]:
        if self._text[at : at + 1] in ('"', "'"):
            return self._quoted(at)
        found = _NAME_5.match(self._text, at) if self._is_json5 else None
        if found is None:
            raise ReadingError(at, f"expected a key or '}}', not {self._shown(at)}")
        return found.end(), _unescaped(found[0])

    def _quoted(self, at: int) -> tuple[int, str]:
        quote = self._text[at]
        if not self._is_json5 and quote == "'":
            raise ReadingError(at, "single quotes need JSON5 (a file called .json5)")
        found = (_TEXTS_5[quote] if self._is_json5 else _TEXT).match(self._text, at)
        if found is None:
            raise ReadingError(at, f"unterminated string: no closing {quote} on this line")
        inside = found[1]
        if "\\" not in inside:
            return found.end(), inside
        if not self._is_json5:
            bad = re.search(r'(?:^|[^\\])(?:\\\\)*\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})(?!\\)', inside)
            if bad:
                raise ReadingError(at + bad.end(), "invalid escape sequence")
        if re.search(r"(?<!\\)(?:\\\\)*\\(?:u(?![0-9a-fA-F]{4})|x(?![0-9a-fA-F]{2})|[1-9]|0[0-9])", inside):
            raise ReadingError(at, "incomplete escape sequence")
        return found.end(), _unescaped(inside)

    def _bare(self, at: int) -> Node:
        word = re.compile(r"\w+").match(self._text, at)
        if word is not None and word[0] in _WORDS:
            return Node(at, word.end(), WORD, None, _WORDS[word[0]])
        found = (_NUMBER_5 if self._is_json5 else _NUMBER).match(self._text, at)
        if found is None or _WORD_END.match(self._text, found.end()):
            raise ReadingError(at, f"expected a value, not {self._shown(at)}")
        return Node(at, found.end(), WORD, None, self._number(found[0], at))

    def _number(self, text: str, at: int) -> Any:
        try:
            if text.lstrip("+-")[:2] in ("0x", "0X"):
                return int(text, 16)
            return int(text) if text.lstrip("+-").isdigit() else float(text)
        except ValueError:
            raise ReadingError(at, "number too long") from None

    def _shown(self, at: int) -> str:
        if at >= len(self._text):
            return "the end of the text"
        found = _RUN.match(self._text, at)
        return f"'{found[0][:20]}'" if found else f"'{self._text[at]}'"


def _unescaped(text: str) -> str:
    joined = _ESCAPE.sub(_meaning, text)
    # Characters beyond the first 65,536 are written as two escapes.
    return joined.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _meaning(found: "re.Match[str]") -> str:
    code, short_code, other = found.groups()
    if code or short_code:
        return chr(int(code or short_code, 16))
    return "" if other in _LINE_ENDS else _SHORT.get(other, other)


def parse_json(text: str) -> Document:
    """Parses a text. Never raises for its content: `problems` has all errors."""
    return _parse(text, is_json5=False)


def parse_json5(text: str) -> Document:
    return _parse(text, is_json5=True)


def _parse(text: str, *, is_json5: bool) -> Document:
    text = text.replace("\ufeff", " ", 1) if text.startswith("\ufeff") else text
    read_tree: Callable[[], tuple[Node | None, list[ReadingError]]]
    read_tree = lambda: json_tree(text, is_json5=is_json5)  # noqa: E731
    try:
        value = _strict(text)
    except (ValueError, RecursionError):
        root, errors = read_tree()
        lines = LineTable(text)
        problems = tuple(Problem(lines.mark(each.offset), each.message, each.key) for each in errors)
        return Document(value_of(root), problems, lambda: Positions(text, root))
    return Document(value, (), lambda: Positions(text, read_tree()[0]))


def _strict(text: str) -> Any:
    """Parses plain JSON. Raises ValueError for anything else, a duplicate key, or deep nesting."""
    import json

    value = json.loads(text, object_pairs_hook=_without_doubles, parse_constant=_refuse)
    if is_too_deep(value):
        raise ValueError
    return value


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


def _refuse(word: str) -> Any:
    raise ValueError(word)  # NaN and Infinity are JSON5
