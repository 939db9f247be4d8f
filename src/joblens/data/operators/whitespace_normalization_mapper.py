from functools import cache
from typing import Any

import numpy as np
import pyarrow.compute as pc

from joblens.data.base.operator import Mapper
from joblens.data.texts.splicing import CharacterReplacer
from joblens.data.texts.text_view import Text, text_of, with_text

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
def _replacer() -> CharacterReplacer:
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
        return with_text(batch, self.text_key, text, _replacer().replaced(Text(array)))


def _may_be_stripped(text: Text) -> bool:
    """Whether some row has anything but visible ASCII at one of its ends."""
    seen = np.concatenate((text.data[text.first_bytes()], text.data[text.last_bytes()]))
    return bool(((seen <= 0x20) | (seen >= 0x80)).any())
