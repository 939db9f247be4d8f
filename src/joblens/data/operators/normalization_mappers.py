"""Normalization mappers: Unicode, punctuation, white space."""

import re
from functools import cache
from typing import Any

import numpy as np
import pyarrow.compute as pc

from joblens.data.base.operator import Mapper
from joblens.data.texts.pattern_replacement import with_rows
from joblens.data.texts.text_view import (
    CharacterClasses,
    CharacterReplacer,
    Text,
    count_rows,
    text_of,
    with_text,
)
from joblens.model.errors import MissingExtra, how_to_install

_FORMS = ("NFC", "NFKC", "NFD", "NFKD")
_SEGMENT = 1_000_000  # characters, from which ftfy cuts lines into pieces

# A line of nothing but these is left alone by every step of ftfy: visible ASCII without the ampersand, and
# letters and marks that no encoding mistake is made of, that are in normal form already and that join with
# none of the others.
_ASCII = "\t\n\f -%'-~"
_LETTERS = (
    "\u05d0-\u05ea"  # Hebrew
    "\u0621-\u063a\u0641-\u064a"  # Arabic
    "\u3001-\u3020\u3041-\u3096\u30a1-\u30fa\u30fc\u4e00-\u9fff"  # Chinese, Japanese
    "\uac00-\ud7a3"  # Korean
    "\u2013-\u2015\u2600-\u27bf\U0001f300-\U0001faff"  # dashes, emoji
)
_ACCENTED = (  # beside other marks than these they may be mistakes
    "\u00df-\u00f6\u00f8-\u00ff"  # Latin
    "\u0401\u0410-\u044f\u0451"  # Cyrillic
    "\u0391-\u03a1\u03a3-\u03a9\u03ac-\u03af\u03b1-\u03ce"  # Greek
)
_COMPATIBLE = "\u00a0\u2026"  # spaces that do not break, ellipses: NFKC replaces them

# Some are replaced by ASCII, and that is all that happens to a line of these and of inert ones: wide forms
# (not the ampersand: entities could be made with it) and quotation marks, of which most are of no harm only
# where there is no accent.
_WIDE = "\u3000\uff01-\uff05\uff07-\uff5e"
_APOSTROPHE = "\u2019"
_QUOTES = "\u2018\u201c\u201d\u201e"
_PLAIN = {
    **{code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F) if code != 0xFF06},
    0x3000: " ",
    0x2018: "'",
    0x2019: "'",
    0x201C: '"',
    0x201D: '"',
    0x201E: '"',
}


def inert_characters(form: str) -> str:
    """As a pattern's set has them."""
    if form not in {"NFC", "NFKC"}:  # accents are to stand by themselves
        return _ASCII
    return _ASCII + _LETTERS + _ACCENTED + (_COMPATIBLE if form == "NFC" else "")


@cache
def simple_line(form: str) -> re.Pattern[str]:
    """Matches lines for which `_PLAIN` is all there is to do."""
    if form not in {"NFC", "NFKC"}:
        return re.compile(f"[{_ASCII}]*")
    inert = inert_characters(form)
    unaccented = inert.replace(_ACCENTED, "")
    return re.compile(f"[{inert}{_WIDE}{_APOSTROPHE}]*|[{unaccented}{_WIDE}{_APOSTROPHE}{_QUOTES}]*")


@cache
def _classes(form: str) -> CharacterClasses:
    inert = re.compile(f"[{inert_characters(form)}]")
    return CharacterClasses(lambda character: int(inert.match(character) is None))


class FixUnicodeMapper(Mapper):
    """Repairs text that was read in a wrong encoding, entities, odd line ends, widths, quotation marks and
    control characters, and brings it into the normal form `normalization`: NFC, NFKC, NFD or NFKD."""

    name = "fix_unicode_mapper"
    needs = "ftfy"

    def __init__(self, normalization: str | None = None) -> None:
        self.normalization = (normalization or "NFC").upper()
        if self.normalization not in _FORMS:
            raise ValueError(f"there is no normal form {normalization!r}; there are {', '.join(_FORMS)}")

    def check(self) -> None:
        _ftfy()

    def map(self, batch: Any) -> Any:
        text = text_of(batch, self.text_key)
        suspects = count_rows(_classes(self.normalization).bits(text, 1), text.offsets)
        changed: dict[int, str] = {}
        for row in np.flatnonzero(suspects).tolist():
            old = text.row(row)
            new = self._fixed(old)
            if new != old:
                changed[row] = new
        return with_text(batch, self.text_key, text, with_rows(text, changed))

    def _fixed(self, text: str) -> str:
        ftfy = _ftfy()
        if len(text) > _SEGMENT:
            fixed: str = ftfy.fix_text(text, normalization=self.normalization)
            return fixed
        config = ftfy.TextFixerConfig(explain=False, normalization=self.normalization)
        lines = _LINE.findall(text)
        for index, line in enumerate(lines):
            # Entities are left alone from the first line on that looks like HTML.
            if "<" in line and config.unescape_html:
                config = config._replace(unescape_html=False)
            if _is_plain(line):
                continue
            if simple_line(self.normalization).fullmatch(line):
                lines[index] = line.translate(_PLAIN)
            else:
                lines[index] = ftfy.fix_and_explain(line, config).text
        return "".join(lines)


_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_SUSPECT = re.compile("[^\t\n\f -~]|&[#0-9A-Za-z]")


def _is_plain(line: str) -> bool:
    return _SUSPECT.search(line) is None


def _ftfy() -> Any:
    try:
        import ftfy
    except ImportError as error:
        raise MissingExtra(
            "fix_unicode_mapper needs the package ftfy, which is not installed",
            hint=how_to_install("data"),
        ) from error
    return ftfy


# The full-width digit one among the quotation marks is DataJuicer's, whose rows these are.
_PUNCTUATION_NORMALIZATION_MAPPER_PLAIN = {
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
    return CharacterReplacer(
        {
            old: new
            for new, characters in _PUNCTUATION_NORMALIZATION_MAPPER_PLAIN.items()
            for old in characters
        }
    )


class PunctuationNormalizationMapper(Mapper):
    """Makes punctuation of other scripts and typographic marks plain ones."""

    name = "punctuation_normalization_mapper"

    def map(self, batch: Any) -> Any:
        text = text_of(batch, self.text_key)
        return with_text(batch, self.text_key, text, _replacer().replaced(text))


# What Python takes for white space at the ends of a text.
_STRIPPED = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009"
    "\u200a\u2028\u2029\u202f\u205f\u3000"
)
# What becomes a space inside: new lines stay.
_SPACES = (
    "\t\x84\xa0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u200b\u200c\u200d\u202f\u205f"
    "\u2060\u3000\ufffc"
)


@cache
def _whitespace_normalization_mapper_replacer() -> CharacterReplacer:
    return CharacterReplacer(dict.fromkeys(_SPACES, " "))


class WhitespaceNormalizationMapper(Mapper):
    """Removes white space at both ends, and makes every kind of space inside a plain one. New lines stay."""

    name = "whitespace_normalization_mapper"

    def map(self, batch: Any) -> Any:
        text = text_of(batch, self.text_key)
        array = text.array
        if _may_be_stripped(text):
            array = pc.utf8_trim(text.array, characters=_STRIPPED)
            if array.nbytes == text.array.nbytes:
                array = text.array
        return with_text(
            batch, self.text_key, text, _whitespace_normalization_mapper_replacer().replaced(Text(array))
        )


def _may_be_stripped(text: Text) -> bool:
    """Whether some row has anything but visible ASCII at one of its ends."""
    seen = np.concatenate((text.data[text.first_bytes()], text.data[text.last_bytes()]))
    return bool(((seen <= 0x20) | (seen >= 0x80)).any())
