from typing import Any

import numpy as np

from joblens.data.texts.clean_patterns import PatternMapper
from joblens.data.texts.pattern_replacement import TokenPattern, around, find_bytes
from joblens.data.texts.text_view import Text

_NUMBER = "1[0-9][0-9]{0}|2[0-4][0-9]{0}|25[0-5]{0}|[1-9][0-9]{0}|[0-9]{0}"
_DOTTED = f"(?:{_NUMBER.format('[.]')}){{3}}(?:{_NUMBER.format('')})"
_GROUPS = "([{digit}a-fA-F]{{1,4}}:){{7}}[{digit}a-fA-F]{{1,4}}"


def _candidates(text: Text) -> Any:
    """Dots and colons between what may be digits of an address."""
    return find_bytes(text, lambda piece: (piece == ord(".")) | (piece == ord(":")), _may_be_address)


def _may_be_address(text: Text, places: Any) -> Any:
    before, behind = around(text, places, -1), around(text, places, 1)
    is_dot = text.data[places] == ord(".")
    dotted = is_dot & _is_digit(before) & _is_digit(behind)
    return dotted | (~is_dot & _may_be_hex(before) & _may_be_hex(behind))


def _is_digit(byte: Any) -> Any:
    return (byte >= ord("0")) & (byte <= ord("9"))


def _may_be_hex(byte: Any) -> Any:
    letter = byte | 0x20
    return _is_digit(byte) | ((letter >= ord("a")) & (letter <= ord("f"))) | (np.asarray(byte) >= 0x80)


class CleanIpMapper(PatternMapper):
    """Removes IPv4 and IPv6 addresses, or what matches `pattern`; `repl` is put in their place."""

    name = "clean_ip_mapper"
    own = TokenPattern(
        f"{_DOTTED}|{_GROUPS.format(digit=chr(92) + 'd')}",
        f"{_DOTTED}|{_GROUPS.format(digit='0-9')}",
        _candidates,
    )
