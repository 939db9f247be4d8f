import re
from collections.abc import Callable
from typing import Any

from joblens.data.base.operator import Mapper
from joblens.data.texts.pattern_replacement import with_rows
from joblens.data.texts.text_view import text_of, with_text

# A sentence ends behind its mark, unless a closing quotation mark follows; then behind that. The classes are
# DataJuicer's, whose sentences these are.
_BREAKS = (  # what a line must have for the pattern to be tried, and the pattern
    ("", re.compile("([.。！!？?])([^’”])")),  # noqa: RUF001
    ("......", re.compile(r"(\.{6})([^’”])")),  # noqa: RUF001
    ("……", re.compile("(…{2})([^’”])")),  # noqa: RUF001
    ("", re.compile("([.。!！？?{6}…2][’”])([^’”])")),  # noqa: RUF001
)
_SPECIAL = re.compile("[^a-zA-Z0-9\u4e00-\u9fa5\n\t ]")


class RemoveRepeatSentencesMapper(Mapper):
    """Removes sentences that stood in the text before; those below `min_repeat_sentence_length` stay."""

    name = "remove_repeat_sentences_mapper"

    def __init__(
        self,
        *,
        lowercase: bool = False,
        ignore_special_character: bool = True,
        min_repeat_sentence_length: int = 2,
    ) -> None:
        self.lowercase = lowercase
        self.ignore_special_character = ignore_special_character
        self.min_repeat_sentence_length = min_repeat_sentence_length

    def map(self, batch: Any) -> Any:
        text = text_of(batch, self.text_key)
        changed: dict[int, str] = {}
        for row, old in enumerate(text.array.to_pylist()):
            new = self._cleaned(old)
            if new is not None:
                changed[row] = new
        return with_text(batch, self.text_key, text, with_rows(text, changed))

    def _cleaned(self, text: str) -> str | None:
        """None: nothing was there twice."""
        seen: set[str] = set()
        is_repeated = self._repeated(seen)
        lines = text.split("\n")
        is_changed = False
        for index, line in enumerate(lines):
            if not line:
                continue
            sentences = _sentences(line)
            kept = [sentence for sentence in sentences if not is_repeated(sentence)]
            if len(kept) < len(sentences):
                lines[index] = "".join(kept)
                is_changed = True
        return "\n".join(lines) if is_changed else None

    def _repeated(self, seen: set[str]) -> Callable[[str], bool]:
        def is_repeated(sentence: str) -> bool:
            key = sentence.strip()
            if self.lowercase:
                key = key.lower()
            if self.ignore_special_character:
                key = _SPECIAL.sub("", key)
            if len(key) < self.min_repeat_sentence_length:
                return False
            is_known = key in seen
            seen.add(key)
            return is_known

        return is_repeated


def _sentences(line: str) -> list[str]:
    for needed, pattern in _BREAKS:
        if needed in line:
            line = pattern.sub(r"\1\n\2", line)
    return line.split("\n")
