"""Words of a text column, found in all rows at once."""

from typing import Any

from joblens.data.texts.bits import Bits, of_words, positions, reversed_bits, runs_end, shifted
from joblens.data.texts.special_characters import LETTER, SEPARATOR, word_classes
from joblens.data.texts.text_view import Text, character_sizes


def word_starts(text: Text) -> Bits:
    """Set at the first character of each word that is not special. Words of special characters only are
    none: nothing is left when those are stripped."""
    letters, separators = _letters_and_separators(text)
    return of_words(_first_letters(letters, separators, _bits_at(text.first_bytes(), text.size)))


def word_spans(text: Text) -> tuple[Any, Any]:
    """Where each word begins and ends, without special characters at its ends."""
    letters, separators = _letters_and_separators(text)
    first = _first_letters(letters, separators, _bits_at(text.first_bytes(), text.size))
    # The last letter of a word is the first one of it, read backwards.
    row_ends = reversed_bits(_bits_at(text.last_bytes(), text.size))
    last = reversed_bits(_first_letters(reversed_bits(letters), reversed_bits(separators), row_ends))
    starts = positions(of_words(first), text.size)
    lasts = positions(of_words(last), text.size)
    return starts, lasts + (1 if text.is_ascii else character_sizes(text.data[lasts]))


def _letters_and_separators(text: Text) -> tuple[Any, Any]:
    letters, separators = Bits(text.size), Bits(text.size)
    for start, classes in word_classes().blocks(text):
        letters.fill(start, classes == LETTER)
        separators.fill(start, classes == SEPARATOR)
    return letters.words, separators.words


def _bits_at(places: Any, size: int) -> Any:
    bits = Bits(size)
    bits.set(places)
    return bits.words


def _first_letters(letters: Any, separators: Any, row_starts: Any) -> Any:
    """A token begins behind a separator, or a row. The special characters it may begin with are leapt over
    by an addition: a run of ones, plus one at its beginning, carries to the bit behind it. A run that goes
    on into the next row cannot carry over wrongly, because that row's own token begins there too."""
    special = ~(letters | separators)
    begins = (shifted(separators) | row_starts) & ~separators
    return letters & (begins | runs_end(begins & special, special))
