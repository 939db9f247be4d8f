"""Values from callers: strings that the kernel accepts, and Python objects as plain data."""

import os
from collections.abc import Mapping
from typing import Any

from joblens.model.errors import InputError


def check_word(where: str, word: Any) -> None:
    """What the kernel can be given: text without NUL that stands for bytes."""
    if not isinstance(word, str):
        raise InputError(f"{where}: {word!r} is not text")
    if "\0" in word:
        raise InputError(f"{where}: {word!r} contains a NUL character")
    if not word.isascii():
        try:
            os.fsencode(word)
        except UnicodeEncodeError:
            raise InputError(f"{where}: {word!r} cannot be written as bytes") from None


_DEEPEST = 20
_LARGEST_INT = 2**63


def plain_text(value: Any) -> str:
    """Text that is valid UTF-8, whatever was given."""
    text = value if type(value) is str else str(value)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def plain_params(params: Mapping[str, Any] | None) -> dict[str, Any]:
    return {plain_text(name): plain_value(value) for name, value in (params or {}).items()}


def plain_value(value: Any, depth: int = 0) -> Any:
    """JSON's own types stay; containers are walked; everything else (arrays, paths, dates) is its text."""
    if value is None or type(value) is bool or (type(value) is int and -_LARGEST_INT <= value < _LARGEST_INT):
        return value
    if type(value) is float:
        # JSON has no words for these.
        return value if value - value == 0 else str(value)
    if depth < _DEEPEST and isinstance(value, Mapping):
        return {plain_text(name): plain_value(item, depth + 1) for name, item in value.items()}
    if depth < _DEEPEST and isinstance(value, (list, tuple, set, frozenset)):
        return [plain_value(item, depth + 1) for item in value]
    return plain_text(value)
