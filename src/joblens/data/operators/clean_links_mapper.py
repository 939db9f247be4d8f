from typing import Any

from joblens.data.texts.clean_patterns import PatternMapper
from joblens.data.texts.pattern_replacement import TokenPattern, around, find_bytes, regex_package
from joblens.data.texts.text_view import Text


def _pattern(word: str, digit: str, space: str, quotes: str) -> str:
    """A scheme and a colon, www and a dot, or a domain and a slash; then anything without spaces, parentheses
    in pairs; at the end no punctuation."""
    start = rf"(?:[a-z][{word}-]+:(?:/{{1,3}}|[a-z0-9%])|www{digit}{{0,3}}[.]|[a-z0-9.\-]+[.][a-z]{{2,4}}/)"
    plain = rf"[^{space}()<>]+"
    nested = rf"\(({plain}|(\({plain}\)))*\)"
    last = rf"[^{space}`!()\[\]{{}};:'\".,<>?{quotes}]"
    return rf"(?i)\b({start}(?:{plain}|{nested})+(?:{nested}|{last}))"


def _candidates(text: Text) -> Any:
    """Of every link one of these is part: a colon between what may be a scheme and its rest, the dot behind
    www, the slash behind a domain."""
    return find_bytes(text, lambda piece: (piece - 0x2E <= 1) | (piece == ord(":")), _may_be_link)


def _may_be_link(text: Text, places: Any) -> Any:
    byte, before, behind = text.data[places], around(text, places, -1), around(text, places, 1)
    has_rest = (behind == ord("/")) | (behind == ord("%")) | _may_be_word(behind)
    is_scheme = (byte == ord(":")) & _may_be_word(before) & has_rest
    is_domain = (byte == ord("/")) & _may_be_letter(before)
    is_www = (byte == ord(".")) & (before >= 0x80)
    for step in range(-4, 0):
        is_www |= (byte == ord(".")) & (around(text, places, step) | 0x20 == ord("w"))
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
    """ASCII characters that the pattern treats like others: a letter it takes for one of a to z, whatever the
    case; any other word character; a quotation mark; a space; anything else."""

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
    """Digits of other scripts may follow www, where nothing stands for them: short tokens of that kind are
    left to the pattern itself, which may never end on long ones."""
    if len(token) <= _SHORT and "www" in token.lower() and any(map(_is_other_digit, token)):
        return ""
    return token.translate(_stand_ins)


def _is_other_digit(character: str) -> bool:
    return character.isdecimal() and not character.isascii()


class CleanLinksMapper(PatternMapper):
    """Removes links, or what matches `pattern`; `repl` is put in their place."""

    name = "clean_links_mapper"
    own = TokenPattern(
        _pattern(r"\w", r"\d", r"\s", _QUOTES),
        _pattern("0-9a-z_", "[0-9]", r" \t\n\v\f\r", ""),
        _candidates,
        stand_in=_stand_in,
    )
