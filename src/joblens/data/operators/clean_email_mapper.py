from typing import Any

from joblens.data.texts.clean_patterns import PatternMapper
from joblens.data.texts.pattern_replacement import TokenPattern, find_bytes
from joblens.data.texts.text_view import Text

_PATTERN = r"[A-Za-z0-9.\-+_]+@[a-z0-9.\-+_]+\.[a-z]+"


def _candidates(text: Text) -> Any:
    return find_bytes(text, lambda piece: piece == ord("@"))


class CleanEmailMapper(PatternMapper):
    """Removes e-mail addresses, or what matches `pattern`; `repl` is put in their place."""

    name = "clean_email_mapper"
    own = TokenPattern(_PATTERN, _PATTERN, _candidates, is_ascii_enough=True)
