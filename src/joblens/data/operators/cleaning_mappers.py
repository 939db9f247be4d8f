"""Cleaning mappers: copyright comments, e-mail and IP addresses, HTML, links, and patterns of your own."""

import re
from typing import Any

import numpy as np
import pyarrow.compute as pc

from joblens.data.base.operator import Mapper
from joblens.data.texts.pattern_replacement import (
    PatternMapper,
    TokenPattern,
    around,
    check_replacement,
    compiled,
    find_bytes,
    regex_package,
    replace_in_rows,
    with_changes,
)
from joblens.data.texts.text_view import CharacterClasses, Text, count_rows, text_of, with_text
from joblens.model.errors import MissingExtra, how_to_install

_COPYRIGHT = re.compile("[cC][oO][pP][yY][rR][iI\u0130][gG][hH][tT]")
_COMMENT_MARKS = ("//", "#", "--")
_FIRST_BYTES = tuple(b"/#-\n")


class CleanCopyrightMapper(Mapper):
    """Removes the first comment between /* and */ if it mentions copyright. Texts without such a comment
    lose their leading lines that are empty or start with //, # or --."""

    name = "clean_copyright_mapper"

    def map(self, batch: Any) -> Any:
        text = text_of(batch, self.text_key)
        array = with_changes(text, _rows_with_comments(text), _without_copyright)
        return with_text(batch, self.text_key, text, array)


def _rows_with_comments(text: Text) -> Any:
    """Returns the rows with a comment, or with a first line that may be one."""
    has_comment = pc.match_substring(text.array, "*/").to_numpy(zero_copy_only=False)
    first_rows = np.flatnonzero(np.diff(text.offsets))
    has_comment[first_rows] |= np.isin(text.data[text.offsets[first_rows]], _FIRST_BYTES)
    return np.flatnonzero(has_comment)


def _without_copyright(text: str) -> str:
    start = text.find("/*")
    end = text.find("*/", start + 2) if start >= 0 else -1
    if end >= 0:
        comment = text[start : end + 2]
        is_copyright = _COPYRIGHT.search(comment) is not None
        return text[:start] + text[end + 2 :] if is_copyright else text
    lines = text.split("\n")
    first = 0
    while first < len(lines) and (not lines[first] or lines[first].startswith(_COMMENT_MARKS)):
        first += 1
    return "\n".join(lines[first:])


_EMAIL = r"[A-Za-z0-9.\-+_]+@[a-z0-9.\-+_]+\.[a-z]+"


def _at_signs(text: Text) -> Any:
    return find_bytes(text, lambda piece: piece == ord("@"))


class CleanEmailMapper(PatternMapper):
    """Replaces e-mail addresses, or matches of `pattern`, with `repl`."""

    name = "clean_email_mapper"
    own = TokenPattern(_EMAIL, _EMAIL, _at_signs, is_ascii_enough=True)


# A text without these, and without leading white space, is its own plain text.
_MARKUP = "<&\r\0\f"
_markup = CharacterClasses(lambda character: int(character in _MARKUP))


class CleanHtmlMapper(Mapper):
    """Converts HTML to plain text; list items start with an asterisk on a line of their own."""

    name = "clean_html_mapper"
    needs = "selectolax"

    def check(self) -> None:
        _parser()

    def map(self, batch: Any) -> Any:
        text = text_of(batch, self.text_key)
        parser = _parser()
        array = with_changes(text, _rows_with_markup(text), lambda old: _plain_text(parser, old))
        return with_text(batch, self.text_key, text, array)


def _rows_with_markup(text: Text) -> Any:
    has_markup = count_rows(_markup.bits(text, 1), text.offsets) > 0
    rows = np.flatnonzero(np.diff(text.offsets))
    has_markup[rows] |= text.data[text.offsets[rows]] <= 0x20
    return np.flatnonzero(has_markup)


def _plain_text(parser: Any, text: str) -> str:
    for item in ("<li>", "<ol>"):
        text = text.replace(item, "\n*").replace(f"</{item[1:]}", "")
    plain: str = parser(text).text()
    return plain


def _parser() -> Any:
    try:
        from selectolax.lexbor import LexborHTMLParser
    except ImportError as error:
        raise MissingExtra(
            "clean_html_mapper needs the package selectolax, which is not installed",
            hint=how_to_install("data"),
        ) from error
    return LexborHTMLParser


_NUMBER = "1[0-9][0-9]{0}|2[0-4][0-9]{0}|25[0-5]{0}|[1-9][0-9]{0}|[0-9]{0}"
_DOTTED = f"(?:{_NUMBER.format('[.]')}){{3}}(?:{_NUMBER.format('')})"
_GROUPS = "([{digit}a-fA-F]{{1,4}}:){{7}}[{digit}a-fA-F]{{1,4}}"


def _dots_and_colons(text: Text) -> Any:
    """Finds dots and colons between possible digits of an address."""
    return find_bytes(text, lambda piece: (piece == ord(".")) | (piece == ord(":")), _may_be_address)


def _may_be_address(text: Text, positions: Any) -> Any:
    before, behind = around(text, positions, -1), around(text, positions, 1)
    is_dot = text.data[positions] == ord(".")
    dotted = is_dot & _is_digit(before) & _is_digit(behind)
    return dotted | (~is_dot & _may_be_hex(before) & _may_be_hex(behind))


def _is_digit(byte: Any) -> Any:
    return (byte >= ord("0")) & (byte <= ord("9"))


def _may_be_hex(byte: Any) -> Any:
    letter = byte | 0x20
    return _is_digit(byte) | ((letter >= ord("a")) & (letter <= ord("f"))) | (np.asarray(byte) >= 0x80)


class CleanIpMapper(PatternMapper):
    """Replaces IPv4 and IPv6 addresses, or matches of `pattern`, with `repl`."""

    name = "clean_ip_mapper"
    own = TokenPattern(
        f"{_DOTTED}|{_GROUPS.format(digit=chr(92) + 'd')}",
        f"{_DOTTED}|{_GROUPS.format(digit='0-9')}",
        _dots_and_colons,
    )


def _link_pattern(word: str, digit: str, space: str, quotes: str) -> str:
    """Returns the pattern of links: a scheme and a colon, www and a dot, or a domain and a slash; then
    anything but spaces, with balanced parentheses; no punctuation at the end."""
    start = rf"(?:[a-z][{word}-]+:(?:/{{1,3}}|[a-z0-9%])|www{digit}{{0,3}}[.]|[a-z0-9.\-]+[.][a-z]{{2,4}}/)"
    plain = rf"[^{space}()<>]+"
    nested = rf"\(({plain}|(\({plain}\)))*\)"
    last = rf"[^{space}`!()\[\]{{}};:'\".,<>?{quotes}]"
    return rf"(?i)\b({start}(?:{plain}|{nested})+(?:{nested}|{last}))"


def _link_marks(text: Text) -> Any:
    """Finds a byte that every link has: the colon after a scheme, the dot after www, or the slash after a
    domain."""
    return find_bytes(text, lambda piece: (piece - 0x2E <= 1) | (piece == ord(":")), _may_be_link)


def _may_be_link(text: Text, positions: Any) -> Any:
    byte, before, behind = text.data[positions], around(text, positions, -1), around(text, positions, 1)
    has_rest = (behind == ord("/")) | (behind == ord("%")) | _may_be_word(behind)
    is_scheme = (byte == ord(":")) & _may_be_word(before) & has_rest
    is_domain = (byte == ord("/")) & _may_be_letter(before)
    is_www = (byte == ord(".")) & (before >= 0x80)
    for step in range(-4, 0):
        is_www |= (byte == ord(".")) & (around(text, positions, step) | 0x20 == ord("w"))
    return is_scheme | is_domain | is_www


def _may_be_letter(byte: Any) -> Any:
    letter = byte | 0x20
    return ((letter >= ord("a")) & (letter <= ord("z"))) | (byte >= 0x80)


def _may_be_word(byte: Any) -> Any:
    is_digit = (byte >= ord("0")) & (byte <= ord("9"))
    return _may_be_letter(byte) | is_digit | (byte == ord("_")) | (byte == ord("-"))


_QUOTES = "«»“”‘’"  # noqa: RUF001
_SHORT = 500  # characters


class _StandIns(dict[int, str]):
    """ASCII characters that the pattern treats like a given character: a letter that it takes for one of a to
    z in either case; another word character; a quotation mark; a space; anything else."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if character in "\x01\x02":
            found = "^"
        elif character.isascii():
            found = character
        elif character in "\u0130\u017f\u212a":
            found = "s"
        elif character in _QUOTES:
            found = '"'
        else:
            found = _other(character)
        self[code] = found
        return found


def _other(character: str) -> str:
    regex = regex_package()
    if regex.match(r"\s", character):
        return " "
    return "_" if regex.match(r"\w", character) else "^"


_stand_ins = _StandIns()


def _stand_in(token: str) -> str:
    """Digits of other scripts may follow www and have no stand-in: short tokens with them go through the
    pattern itself, which may never end on long ones."""
    if len(token) <= _SHORT and "www" in token.lower() and any(map(_is_other_digit, token)):
        return ""
    return token.translate(_stand_ins)


def _is_other_digit(character: str) -> bool:
    return character.isdecimal() and not character.isascii()


class CleanLinksMapper(PatternMapper):
    """Replaces links, or matches of `pattern`, with `repl`."""

    name = "clean_links_mapper"
    own = TokenPattern(
        _link_pattern(r"\w", r"\d", r"\s", _QUOTES),
        _link_pattern("0-9a-z_", "[0-9]", r" \t\n\v\f\r", ""),
        _link_marks,
        stand_in=_stand_in,
    )


class ReplaceContentMapper(Mapper):
    """Replaces matches of `pattern` with `repl`; with lists, each pattern with the text at the same index, in
    order."""

    name = "replace_content_mapper"

    def __init__(self, pattern: str | list[str] | None = None, repl: str | list[str] = "") -> None:
        patterns = [pattern] if isinstance(pattern, str) else list(pattern or ())
        replacements = [repl] * len(patterns) if isinstance(repl, str) else list(repl)
        if len(replacements) < len(patterns):
            raise ValueError(f"'repl' has {len(replacements)} texts for {len(patterns)} patterns")
        self.pairs = list(zip(patterns, replacements, strict=False))
        self._compiled: list[tuple[Any, str]] = []

    def check(self) -> None:
        for pattern, replacement in self.pairs:
            check_replacement(self.name, pattern, replacement)

    def map(self, batch: Any) -> Any:
        if not self._compiled:
            self._compiled = [(compiled(self.name, pattern), repl) for pattern, repl in self.pairs]
        text = text_of(batch, self.text_key)
        array = text.array
        for pattern, replacement in self._compiled:
            array = replace_in_rows(Text(array), pattern, replacement)
        return with_text(batch, self.text_key, text, array)
