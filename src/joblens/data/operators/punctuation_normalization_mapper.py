from functools import cache
from typing import Any

from joblens.data.base.operator import Mapper
from joblens.data.texts.splicing import CharacterReplacer
from joblens.data.texts.text_view import text_of, with_text

# The full-width digit one among the quotation marks is DataJuicer's, whose rows these are.
_PLAIN = {
    '"': "„”“«»１」「《》",  # noqa: RUF001
    "'": "´’",  # noqa: RUF001
    ",": "，、",  # noqa: RUF001
    ".": "。",
    ":": "∶：",  # noqa: RUF001
    "?": "？",  # noqa: RUF001
    "!": "！",  # noqa: RUF001
    "(": "（",  # noqa: RUF001
    ")": "）",  # noqa: RUF001
    ";": "；",  # noqa: RUF001
    "-": "–━►",  # noqa: RUF001
    " - ": "—",
    ". ": "．",  # noqa: RUF001
    "~": "～",  # noqa: RUF001
    "...": "…",
    "<": "〈",
    ">": "〉",
    "[": "【",
    "]": "】",
    "%": "％",  # noqa: RUF001
}


@cache
def _replacer() -> CharacterReplacer:
    return CharacterReplacer({old: new for new, characters in _PLAIN.items() for old in characters})


class PunctuationNormalizationMapper(Mapper):
    """Makes punctuation of other scripts and typographic marks plain ones."""

    name = "punctuation_normalization_mapper"

    def map(self, batch: Any) -> Any:
        text = text_of(batch, self.text_key)
        return with_text(batch, self.text_key, text, _replacer().replaced(text))
