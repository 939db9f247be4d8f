"""Texts that go to the kernel: as a program's arguments, its variables, its paths."""

import os
from typing import Any

from joblens.model.errors import InputError


def check_word(where: str, word: Any) -> None:
    """What the kernel can be given: text without NUL that stands for bytes."""
    if not isinstance(word, str):
        raise InputError(f"{where}: {word!r} is not text")
    if "\0" in word:
        raise InputError(f"{where}: {word!r} has a NUL character in it, which no program can be given")
    if not word.isascii():
        try:
            os.fsencode(word)
        except UnicodeEncodeError:
            raise InputError(f"{where}: {word!r} cannot be written as bytes") from None
