from typing import Any

import numpy as np

from joblens.data.base.operator import Mapper
from joblens.data.texts.bits import count_rows
from joblens.data.texts.pattern_replacement import with_rows
from joblens.data.texts.text_view import CharacterClasses, Text, text_of, with_text
from joblens.model.errors import MissingExtra, how_to_install

# Without these, and without white space at the beginning, a text is the text of itself as HTML.
_MARKUP = "<&\r\0\f"
_classes = CharacterClasses(lambda character: int(character in _MARKUP))


class CleanHtmlMapper(Mapper):
    """Makes plain text of HTML; items of lists begin with an asterisk in a line of their own."""

    name = "clean_html_mapper"
    needs = "selectolax"

    def check(self) -> None:
        _parser()

    def map(self, batch: Any) -> Any:
        text = text_of(batch, self.text_key)
        parser = _parser()
        changed: dict[int, str] = {}
        for row in _candidates(text).tolist():
            old = text.row(row)
            new = _plain(parser, old)
            if new != old:
                changed[row] = new
        return with_text(batch, self.text_key, text, with_rows(text, changed))


def _candidates(text: Text) -> Any:
    has_markup = count_rows(_classes.bits(text, 1), text.offsets) > 0
    rows = np.flatnonzero(np.diff(text.offsets))
    has_markup[rows] |= text.data[text.offsets[rows]] <= 0x20
    return np.flatnonzero(has_markup)


def _plain(parser: Any, text: str) -> str:
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
