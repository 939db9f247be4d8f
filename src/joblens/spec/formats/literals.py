"""A single value written in each format, in the quotes its predecessor had where that still works."""

import math
import re
from typing import Any

from joblens.model.errors import InputError
from joblens.spec.formats.yaml_lines import plain_value

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}
_YAML_PLAIN = re.compile(r"[A-Za-z0-9_/][A-Za-z0-9_./+%@=-]*(?: [A-Za-z0-9_./+%@=-]+)*")
_YAML_1_1_WORDS = frozenset({"yes", "no", "on", "off", "y", "n"})
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BARE_WORD = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")


def write_value(format: str, value: Any, quote: str) -> str:  # noqa: A002
    """`quote` is what the text that stood here before (or stands beside) began with."""
    if isinstance(value, str):
        return _write_text(format, value, quote)
    if isinstance(value, bool):
        word = "true" if value else "false"
        return f"#{word}" if format == "kdl" and quote != "true" else word
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else _write_unbounded(format, value)
    raise InputError(f"only text, numbers, true and false can be written into a file, not {value!r}")


def write_key(format: str, key: str, quote: str) -> str:  # noqa: A002
    match format:
        case "json":
            return _escaped(key, '"', format)
        case "json5":
            is_bare = not quote and _BARE_WORD.fullmatch(key)
            return key if is_bare else _escaped(key, quote or "'", format)
        case "yaml":
            is_bare = not quote and _YAML_PLAIN.fullmatch(key)
            return key if is_bare else _escaped(key, '"', format)
        case "kdl":
            return key if _BARE_WORD.fullmatch(key) and key not in _KDL_WORDS else _escaped(key, '"', format)
    return key if _BARE_KEY.fullmatch(key) else _escaped(key, '"', format)


_KDL_WORDS = frozenset({"true", "false", "null", "inf", "nan"})


def _write_text(format: str, text: str, quote: str) -> str:  # noqa: A002
    is_printable = all(map(_is_printable, text))
    if format == "yaml":
        if not quote and _is_yaml_plain(text):
            return text
        if quote == "'" and is_printable:
            return "'" + text.replace("'", "''") + "'"
    elif format == "json5" and quote == "'":
        return _escaped(text, "'", format)
    elif format == "toml" and quote == "'" and is_printable and "'" not in text:
        return f"'{text}'"
    elif format == "kdl" and quote.endswith('"') and len(quote.rstrip('"')) and is_printable:
        closing = '"' + "#" * quote.count("#")
        if quote.count('"') == 1 and closing not in text + closing[:-1] and not text.startswith('""'):
            return quote + text + closing
    return _escaped(text, '"', format)


def _is_yaml_plain(text: str) -> bool:
    if not _YAML_PLAIN.fullmatch(text) or text.lower() in _YAML_1_1_WORDS:
        return False
    return isinstance(plain_value(text), str)


def _is_printable(character: str) -> bool:
    return character == " " or (character.isprintable() and character != "\ufeff")


def _escaped(text: str, quote: str, format: str) -> str:  # noqa: A002
    inside = "".join(
        f"\\{character}"
        if character == quote
        else _SHORT.get(character) or (character if _is_printable(character) else _code(character, format))
        for character in text
    )
    return quote + inside + quote


def _code(character: str, format: str) -> str:  # noqa: A002
    number = ord(character)
    if format == "kdl":
        return f"\\u{{{number:x}}}"
    if number <= 0xFFFF:
        return f"\\u{number:04x}"
    if format in ("yaml", "toml"):
        return f"\\U{number:08x}"
    high, low = divmod(number - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


def _write_unbounded(format: str, value: float) -> str:  # noqa: A002
    sign = "-" if value < 0 else ""
    word = "nan" if math.isnan(value) else "inf"
    match format:
        case "yaml":
            return f"{sign}.{word}"
        case "toml":
            return sign + word
        case "kdl":
            return f"#{sign}{word}"
        case "json5":
            return "NaN" if word == "nan" else f"{sign}Infinity"
    raise InputError(f"{value} cannot be written in JSON")
