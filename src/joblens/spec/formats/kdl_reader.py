"""KDL reader: nodes with the extent of everything, in the syntax of KDL 1 and KDL 2."""

import re
from typing import Any

from msgspec import Struct

from joblens.spec.formats.positions import MOST_DEPTH, ReadingError

_BARE = re.compile(r"""[^\s\ufeff\\/(){};\[\]="#]+""")
_NOT_BARE = frozenset({"inf", "-inf", "nan"})
_LIKE_A_NUMBER = re.compile(r"[+-]?\.?[0-9]")
_QUOTED = re.compile(r'"((?:[^"\\]|\\[\s\S])*)"')
_LINES = re.compile(r'"""((?:[^"\\]|\\[\s\S]|"(?!""))*)"""')
_ESCAPE = re.compile(r"\\(?:u\{([0-9a-fA-F]{1,6})\}|(\s+)|([\s\S]))")
_SHORT = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "/": "/", "b": "\b", "f": "\f", "s": " "}
_NEWLINE = re.compile(r"\r\n|[\n\r\x85\x0b\f\u2028\u2029]")


class KdlString(Struct):
    value: str
    end: int
    quote: str  # its prefix: "word" for none


def read_string(text: str, at: int) -> KdlString | None:
    """Reads a string; None: none starts here. Raises ReadingError for a malformed one."""
    if text.startswith('"""', at):
        return _lines(text, at)
    if text.startswith('"', at):
        found = _QUOTED.match(text, at)
        if found is None:
            raise ReadingError(at, "unterminated string")
        return KdlString(_unescaped(found[1], at + 1), found.end(), '"')
    if re.compile(r'#+"|r#*"').match(text, at):
        return _raw(text, at)
    found = _BARE.match(text, at)
    if found is None or _LIKE_A_NUMBER.match(found[0]) or found[0] in _NOT_BARE:
        return None
    return KdlString(found[0], found.end(), "word")


def _raw(text: str, at: int) -> KdlString:
    found = re.compile(r'r(#*)"|(#+)("""|")').match(text, at)
    assert found is not None  # the caller has checked
    hashes, quotes = (found[1], '"') if found[2] is None else (found[2], found[3])
    if quotes == '"""' and not _NEWLINE.match(text, found.end()):
        quotes = '"'  # """# is a raw string of one quote
        begin = found.start() + len(hashes) + 1
    else:
        begin = found.end()
    end = text.find(quotes + hashes, begin)
    if end < 0:
        raise ReadingError(at, f"unterminated string: no closing {quotes}{hashes}")
    inside = text[begin:end]
    value = _dedented(inside, at) if quotes == '"""' else inside
    return KdlString(value, end + len(quotes + hashes), text[at:begin])


def _lines(text: str, at: int) -> KdlString:
    found = _LINES.match(text, at)
    if found is None:
        raise ReadingError(at, 'unterminated string: no closing """')
    if not _NEWLINE.match(found[1]):
        raise ReadingError(at, 'the first line of a """ string must be below its quotes')
    joined = re.sub(r"((?:^|[^\\])(?:\\\\)*)\\\s+", r"\1", found[1])
    return KdlString(_unescaped(_dedented(joined, at), at), found.end(), '"""')


def _dedented(inside: str, at: int) -> str:
    """Removes the indentation of the closing quotes, which are on a line of their own, from every line."""
    _, *lines = _NEWLINE.split(inside)
    indent = lines.pop() if lines else ""
    if indent.strip():
        raise ReadingError(at, 'the closing """ must be on a line of its own')
    for line in lines:
        if line.strip() and not line.startswith(indent):
            raise ReadingError(at, 'a line of this string is indented less than its closing """')
    return "\n".join(line[len(indent) :] if line.strip() else "" for line in lines)


def _unescaped(text: str, at: int) -> str:
    if "\\" not in text:
        return text

    def meaning(found: "re.Match[str]") -> str:
        code, blank, short = found.groups()
        if blank:
            return ""
        if code:
            number = int(code, 16)
            if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
                raise ReadingError(at + found.start(), f"there is no character '{found[0]}'")
            return chr(number)
        if short not in _SHORT:
            raise ReadingError(at + found.start(), f"invalid escape sequence '{found[0]}'")
        return _SHORT[short]

    return _ESCAPE.sub(meaning, text)


_SPACE = "\ufeff\t \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"
_KDL_LINES_NEWLINE = r"(?:\r\n|[\n\r\x85\x0b\f\u2028\u2029])"
_BLANK = re.compile(rf"[{_SPACE}]+")
_LINE_END = re.compile(_KDL_LINES_NEWLINE)
_LINE_COMMENT = re.compile(r"//[^\n\r\x85\x0b\f\u2028\u2029]*")
_CONTINUATION = re.compile(rf"\\[{_SPACE}]*(?://[^\n\r\x85\x0b\f\u2028\u2029]*)?(?:{_KDL_LINES_NEWLINE}|\Z)")
_NUMBER = re.compile(
    r"[+-]?(?:0x[0-9a-fA-F][0-9a-fA-F_]*|0o[0-7][0-7_]*|0b[01][01_]*"
    r"|[0-9][0-9_]*(\.[0-9][0-9_]*)?([eE][+-]?[0-9][0-9_]*)?)"
)
_KEYWORD = re.compile(r"#(?:true|false|null|-?inf|nan)(?![\w#\"])")
_KEYWORDS: dict[str, Any] = {
    "#true": True,
    "#false": False,
    "#null": None,
    "#inf": float("inf"),
    "#-inf": float("-inf"),
    "#nan": float("nan"),
    "true": True,
    "false": False,
    "null": None,
}


class KdlValue(Struct):
    start: int
    end: int
    value: Any
    style: str  # a quote, or "word"


class KdlProperty(Struct):
    name: str
    start: int
    value: KdlValue


class KdlNode(Struct):
    name: str
    start: int
    end: int  # behind its last character, without its terminator
    arguments: list[KdlValue]
    properties: list[KdlProperty]
    children: "list[KdlNode] | None" = None
    children_start: int = 0  # the opening brace


def read_kdl(text: str) -> list[KdlNode]:
    """Parses KDL. Raises ReadingError."""
    reading = _Reading(text)
    nodes = reading.nodes(depth=0)
    if reading.at < len(text):
        raise ReadingError(reading.at, "'}' closes nothing")
    return nodes


class _Reading:
    def __init__(self, text: str) -> None:
        self.at = 0
        self._text = text

    def nodes(self, depth: int) -> list[KdlNode]:
        """Reads nodes up to the closing brace or the end of the text."""
        if depth > MOST_DEPTH:
            raise ReadingError(self.at, f"nodes are nested more than {MOST_DEPTH} deep")
        found: list[KdlNode] = []
        while True:
            self._skip_lines()
            if self.at >= len(self._text) or self._text[self.at] == "}":
                return found
            is_dropped = self._slashdash()
            node = self._node(depth)
            if not is_dropped:
                found.append(node)

    def _node(self, depth: int) -> KdlNode:
        start = self.at
        self._annotation()
        name = self._string("the name of a node")
        node = KdlNode(name.value, start, self.at, [], [])
        while True:
            had_space = self._skip_blank()
            at, text = self.at, self._text
            if at >= len(text) or text[at] in ";}" or _LINE_END.match(text, at) or text.startswith("//", at):
                self._skip_terminator()
                return node
            is_dropped = self._slashdash()
            if text[self.at : self.at + 1] == "{":
                self._children(node, depth, is_dropped=is_dropped)
            elif node.children is not None:
                raise ReadingError(self.at, "nothing may follow the closing brace of a node on its line")
            elif not had_space and not is_dropped:
                raise ReadingError(self.at, f"expected a space before {self._shown()}")
            else:
                self._entry(node, is_dropped=is_dropped)
            if not is_dropped:
                node.end = self.at

    def _children(self, node: KdlNode, depth: int, *, is_dropped: bool) -> None:
        start = self.at
        self.at += 1
        children = self.nodes(depth + 1)
        if self._text[self.at : self.at + 1] != "}":
            raise ReadingError(start, "unclosed brace")
        self.at += 1
        if is_dropped:
            return
        if node.children is not None:
            raise ReadingError(start, "a node has one block of children")
        node.children, node.children_start = children, start

    def _entry(self, node: KdlNode, *, is_dropped: bool) -> None:
        start = self.at
        value = self._value()
        if value.style != "number" and self._text[start] != "(" and self._equals():
            if not isinstance(value.value, str):
                raise ReadingError(
                    start, f"'{self._text[start : value.end]}' cannot be the name of a property"
                )
            self._skip_blank()
            entry = KdlProperty(value.value, start, self._value())
            if not is_dropped:
                node.properties.append(entry)
        elif not is_dropped:
            node.arguments.append(value)

    def _equals(self) -> bool:
        before = self.at
        self._skip_blank()
        if self._text[self.at : self.at + 1] == "=":
            self.at += 1
            return True
        self.at = before
        return False

    def _value(self) -> KdlValue:
        start = self.at
        self._annotation()
        text = self._text
        found = _KEYWORD.match(text, self.at)
        if found:
            self.at = found.end()
            return KdlValue(start, self.at, _KEYWORDS[found[0]], "word")
        found = _NUMBER.match(text, self.at)
        if found:
            return self._number(found, start)
        string = self._string("a value")
        if string.quote == "word" and string.value in _KEYWORDS:
            return KdlValue(start, self.at, _KEYWORDS[string.value], "word")
        return KdlValue(start, self.at, string.value, string.quote)

    def _number(self, found: "re.Match[str]", start: int) -> KdlValue:
        after = self._text[found.end() : found.end() + 1]
        if after and (after.isalnum() or after in "_.-+"):
            raise ReadingError(
                start, f"{self._shown()} is not a number; text that begins like one needs quotes"
            )
        self.at = found.end()
        digits = found[0].replace("_", "")
        try:
            is_float = found[1] or found[2]
            value = (
                float(digits) if is_float else int(digits, 0 if digits.lstrip("+-")[1:2].isalpha() else 10)
            )
        except ValueError:
            raise ReadingError(start, "number too long") from None
        return KdlValue(start, self.at, value, "number")

    def _string(self, what: str) -> KdlString:
        string = read_string(self._text, self.at)
        if string is None:
            raise ReadingError(self.at, f"expected {what}, not {self._shown()}")
        self.at = string.end
        return string

    def _annotation(self) -> None:
        if self._text[self.at : self.at + 1] != "(":
            return
        start = self.at
        self.at += 1
        self._skip_blank()
        self._string("a type")
        self._skip_blank()
        if self._text[self.at : self.at + 1] != ")":
            raise ReadingError(start, "unclosed type annotation")
        self.at += 1
        self._skip_blank()

    def _slashdash(self) -> bool:
        if not self._text.startswith("/-", self.at):
            return False
        self.at += 2
        self._skip_lines()
        return True

    def _skip_terminator(self) -> None:
        if self._text[self.at : self.at + 1] == ";":
            self.at += 1

    def _skip_lines(self) -> None:
        """Skips blanks, line endings, comments and stray semicolons between nodes."""
        while True:
            self._skip_blank()
            found = _LINE_END.match(self._text, self.at) or _LINE_COMMENT.match(self._text, self.at)
            if found:
                self.at = found.end()
            elif self._text[self.at : self.at + 1] == ";":
                self.at += 1
            else:
                return

    def _skip_blank(self) -> bool:
        """Skips blanks, /* comments */ and continued lines inside a node. Returns whether there were any."""
        before = self.at
        while True:
            found = _BLANK.match(self._text, self.at) or _CONTINUATION.match(self._text, self.at)
            if found:
                self.at = found.end()
            elif self._text.startswith("/*", self.at):
                self._skip_block_comment()
            else:
                return self.at > before

    def _skip_block_comment(self) -> None:
        start, depth = self.at, 0
        for found in re.compile(r"/\*|\*/").finditer(self._text, start):
            depth += 1 if found[0] == "/*" else -1
            if depth == 0:
                self.at = found.end()
                return
        raise ReadingError(start, "unclosed comment")

    def _shown(self) -> str:
        if self.at >= len(self._text):
            return "the end of the text"
        found = re.compile(r"[^\s;{}()]+").match(self._text, self.at)
        return f"'{found[0][:20]}'" if found else f"'{self._text[self.at]}'"
