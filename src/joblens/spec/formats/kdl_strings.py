"""The strings of KDL: bare words, "quoted", raw in the two spellings, and the three-quote ones over several
lines, whose common indentation is not part of them."""

import re

from msgspec import Struct

from joblens.spec.formats.positions import ReadingError

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
    quote: str  # what stands before it: "word" for none


def read_string(text: str, at: int) -> KdlString | None:
    """None: no string begins here. ReadingError: one begins, but something is wrong with it."""
    if text.startswith('"""', at):
        return _lines(text, at)
    if text.startswith('"', at):
        found = _QUOTED.match(text, at)
        if found is None:
            raise ReadingError(at, "the text that begins here is never closed")
        return KdlString(_unescaped(found[1], at + 1), found.end(), '"')
    if re.compile(r'#+"|r#*"').match(text, at):
        return _raw(text, at)
    found = _BARE.match(text, at)
    if found is None or _LIKE_A_NUMBER.match(found[0]) or found[0] in _NOT_BARE:
        return None
    return KdlString(found[0], found.end(), "word")


def _raw(text: str, at: int) -> KdlString:
    found = re.compile(r'r(#*)"|(#+)("""|")').match(text, at)
    assert found is not None  # the caller looked
    hashes, quotes = (found[1], '"') if found[2] is None else (found[2], found[3])
    if quotes == '"""' and not _NEWLINE.match(text, found.end()):
        quotes = '"'  # #"""# is a raw string of one quote
        begin = found.start() + len(hashes) + 1
    else:
        begin = found.end()
    end = text.find(quotes + hashes, begin)
    if end < 0:
        raise ReadingError(at, f"the text that begins here is never closed by {quotes}{hashes}")
    inside = text[begin:end]
    value = _dedented(inside, at) if quotes == '"""' else inside
    return KdlString(value, end + len(quotes + hashes), text[at:begin])


def _lines(text: str, at: int) -> KdlString:
    found = _LINES.match(text, at)
    if found is None:
        raise ReadingError(at, 'the text that begins here is never closed by """')
    if not _NEWLINE.match(found[1]):
        raise ReadingError(at, 'the first line of the text goes below its """')
    joined = re.sub(r"((?:^|[^\\])(?:\\\\)*)\\\s+", r"\1", found[1])
    return KdlString(_unescaped(_dedented(joined, at), at), found.end(), '"""')


def _dedented(inside: str, at: int) -> str:
    """The closing quotes stand on a line of their own: what is before them is taken from every line."""
    _, *lines = _NEWLINE.split(inside)
    indent = lines.pop() if lines else ""
    if indent.strip():
        raise ReadingError(at, 'the closing """ of the text that begins here goes on a line of its own')
    for line in lines:
        if line.strip() and not line.startswith(indent):
            raise ReadingError(at, 'a line of this text begins left of its closing """')
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
            raise ReadingError(at + found.start(), f"KDL does not know the escape '{found[0]}'")
        return _SHORT[short]

    return _ESCAPE.sub(meaning, text)
