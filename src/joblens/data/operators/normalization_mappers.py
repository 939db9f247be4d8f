"""Normalization mappers: Unicode, punctuation, white space."""

import re
from functools import cache
from typing import Any

import numpy as np
import pyarrow.compute as pc

from joblens.data.base.operator import Mapper
from joblens.data.texts.pattern_replacement import with_changes
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
_SEGMENT = 1_000_000  # characters; ftfy splits longer lines

# No step of ftfy changes a line of only these: visible ASCII without the ampersand, and letters and marks
# that never result from a wrong encoding, are in normal form, and combine with none of the others.
_ASCII = "\t\n\f -%'-~"
_LETTERS = (
    "\u05d0-\u05ea"  # Hebrew
    "\u0621-\u063a\u0641-\u064a"  # Arabic
    "\u3001-\u3020\u3041-\u3096\u30a1-\u30fa\u30fc\u4e00-\u9fff"  # Chinese, Japanese
    "\uac00-\ud7a3"  # Korean
    "\u2013-\u2015\u2600-\u27bf\U0001f300-\U0001faff"  # dashes, emoji
)
_ACCENTED = (  # next to marks other than these they may be encoding errors
    "\u00df-\u00f6\u00f8-\u00ff"  # Latin
    "\u0401\u0410-\u044f\u0451"  # Cyrillic
    "\u0391-\u03a1\u03a3-\u03a9\u03ac-\u03af\u03b1-\u03ce"  # Greek
)
_COMPATIBLE = "\u00a0\u2026"  # non-breaking spaces, ellipses: NFKC replaces them

# In a line of these and of inert characters, ftfy only replaces these by ASCII: wide forms (not the
# ampersand, which could form an entity) and quotation marks, most of them only where the line has no accents.
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
    """Returns the inert characters as the inside of a regular expression's set."""
    if form not in {"NFC", "NFKC"}:  # accents become separate characters
        return _ASCII
    return _ASCII + _LETTERS + _ACCENTED + (_COMPATIBLE if form == "NFC" else "")


@cache
def simple_line(form: str) -> re.Pattern[str]:
    """Matches lines that only need the replacements of `_PLAIN`."""
    if form not in {"NFC", "NFKC"}:
        return re.compile(f"[{_ASCII}]*")
    inert = inert_characters(form)
    unaccented = inert.replace(_ACCENTED, "")
    return re.compile(f"[{inert}{_WIDE}{_APOSTROPHE}]*|[{unaccented}{_WIDE}{_APOSTROPHE}{_QUOTES}]*")


@cache
def _suspect_characters(form: str) -> CharacterClasses:
    inert = re.compile(f"[{inert_characters(form)}]")
    return CharacterClasses(lambda character: int(inert.match(character) is None))


class FixUnicodeMapper(Mapper):
    """Repairs wrongly decoded text, entities, line endings, character widths, quotation marks and control
    characters, and converts to the normal form `normalization`: NFC, NFKC, NFD or NFKD."""

    name = "fix_unicode_mapper"
    needs = "ftfy"

    def __init__(self, normalization: str | None = None) -> None:
        self.normalization = (normalization or "NFC").upper()
        if self.normalization not in _FORMS:
            raise ValueError(f"unknown normal form {normalization!r}; use one of {', '.join(_FORMS)}")

    def check(self) -> None:
        _ftfy()

    def map(self, batch: Any) -> Any:
        text = text_of(batch, self.text_key)
        suspects = count_rows(_suspect_characters(self.normalization).bits(text, 1), text.offsets)
        array = with_changes(text, np.flatnonzero(suspects), self._fixed)
        return with_text(batch, self.text_key, text, array)

    def _fixed(self, text: str) -> str:
        ftfy = _ftfy()
        if len(text) > _SEGMENT:
            fixed: str = ftfy.fix_text(text, normalization=self.normalization)
            return fixed
        config = ftfy.TextFixerConfig(explain=False, normalization=self.normalization)
        lines = _LINE.findall(text)
        for index, line in enumerate(lines):
            # From the first line that looks like HTML, entities stay.
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


# The full-width digit one among the quotation marks is a quirk of DataJuicer, whose output this matches.
_PUNCTUATION = {
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
def _punctuation() -> CharacterReplacer:
    return CharacterReplacer({old: new for new, characters in _PUNCTUATION.items() for old in characters})


class PunctuationNormalizationMapper(Mapper):
    """Replaces punctuation of other scripts and typographic marks with ASCII."""

    name = "punctuation_normalization_mapper"

    def map(self, batch: Any) -> Any:
        text = text_of(batch, self.text_key)
        return with_text(batch, self.text_key, text, _punctuation().replaced(text))


# White space for str.strip.
_STRIPPED = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009"
    "\u200a\u2028\u2029\u202f\u205f\u3000"
)
# Replaced by a space; new lines stay.
_SPACES = (
    "\t\x84\xa0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u200b\u200c\u200d\u202f\u205f"
    "\u2060\u3000\ufffc"
)


@cache
def _spaces() -> CharacterReplacer:
    return CharacterReplacer(dict.fromkeys(_SPACES, " "))


class WhitespaceNormalizationMapper(Mapper):
    """Strips white space at both ends and replaces every kind of space inside by a plain one. Keeps new
    lines."""

    name = "whitespace_normalization_mapper"

    def map(self, batch: Any) -> Any:
        text = text_of(batch, self.text_key)
        array = text.array
        if _may_be_stripped(text):
            array = pc.utf8_trim(text.array, characters=_STRIPPED)
            if array.nbytes == text.array.nbytes:
                array = text.array
        return with_text(batch, self.text_key, text, _spaces().replaced(Text(array)))


def _may_be_stripped(text: Text) -> bool:
    """Returns whether some row starts or ends with anything but visible ASCII."""
    edges = np.concatenate((text.data[text.first_bytes()], text.data[text.last_bytes()]))
    return bool(((edges <= 0x20) | (edges >= 0x80)).any())
