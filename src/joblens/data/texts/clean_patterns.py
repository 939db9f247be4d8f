"""Mappers that remove what matches a pattern: their own, or one that is given."""

from typing import Any, ClassVar

from joblens.data.base.operator import Mapper
from joblens.data.texts.pattern_replacement import (
    TokenPattern,
    check_replacement,
    compiled,
    replace_in_rows,
    replace_tokens,
)
from joblens.data.texts.text_view import text_of, with_text


class PatternMapper(Mapper):
    own: ClassVar[TokenPattern]

    def __init__(self, pattern: str | None = None, repl: str = "") -> None:
        self.pattern = pattern
        self.repl = repl
        self._given: Any = None

    def check(self) -> None:
        pattern = self.own.pattern if self.pattern is None else self.pattern
        if self.pattern is not None or "\\" in self.repl:
            check_replacement(self.name, pattern, self.repl)

    def map(self, batch: Any) -> Any:
        text = text_of(batch, self.text_key)
        if self.pattern is None:
            array = replace_tokens(text, self.own, self.repl)
        else:
            self._given = self._given or compiled(self.name, self.pattern)
            array = replace_in_rows(text, self._given, self.repl)
        return with_text(batch, self.text_key, text, array)
