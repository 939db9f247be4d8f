"""Words of a text column, found in all rows at once."""

from typing import Any

from joblens.data.bits import Bits, of_words, runs_end, shifted
from joblens.data.special_characters import LETTER, SEPARATOR, word_classes
from joblens.data.text_view import Text


def word_starts(text: Text) -> Bits:
    """Set at the first character of each word that is not special. Words of special characters only are
    none: nothing is left when those are stripped."""
    letters, separators = Bits(text.size), Bits(text.size)
    for start, classes in word_classes().blocks(text):
        letters.fill(start, classes == LETTER)
        separators.fill(start, classes == SEPARATOR)
    return of_words(_first_letters(letters.words, separators.words, _at(text.first_bytes(), text.size)))


def _at(places: Any, size: int) -> Any:
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
