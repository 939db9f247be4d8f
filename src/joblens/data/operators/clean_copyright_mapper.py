import re
from typing import Any

import numpy as np
import pyarrow.compute as pc

from joblens.data.base.operator import Mapper
from joblens.data.texts.pattern_replacement import with_rows
from joblens.data.texts.text_view import Text, text_of, with_text

_COPYRIGHT = re.compile("[cC][oO][pP][yY][rR][iI\u0130][gG][hH][tT]")
_COMMENT_MARKS = ("//", "#", "--")
_FIRST_BYTES = tuple(b"/#-\n")


class CleanCopyrightMapper(Mapper):
    """Removes the first comment between /* and */ when it speaks of copyright. Texts without such a comment
    lose the lines at their beginning that are empty or begin with //, # or --."""

    name = "clean_copyright_mapper"

    def map(self, batch: Any) -> Any:
        text = text_of(batch, self.text_key)
        changed: dict[int, str] = {}
        for row in _candidates(text).tolist():
            old = text.row(row)
            new = _cleaned(old)
            if new != old:
                changed[row] = new
        return with_text(batch, self.text_key, text, with_rows(text, changed))


def _candidates(text: Text) -> Any:
    """Rows with a comment, or with a first line that may have to go."""
    has_comment = pc.match_substring(text.array, "*/").to_numpy(zero_copy_only=False)
    first_rows = np.flatnonzero(np.diff(text.offsets))
    has_comment[first_rows] |= np.isin(text.data[text.offsets[first_rows]], _FIRST_BYTES)
    return np.flatnonzero(has_comment)


def _cleaned(text: str) -> str:
    start = text.find("/*")
    end = text.find("*/", start + 2) if start >= 0 else -1
    if end >= 0:
        comment = text[start : end + 2]
        is_copyright = _COPYRIGHT.search(comment) is not None
        return text[:start] + text[end + 2 :] if is_copyright else text
    lines = text.split("\n")
    kept = 0
    while kept < len(lines) and (not lines[kept] or lines[kept].startswith(_COMMENT_MARKS)):
        kept += 1
    return "\n".join(lines[kept:])
