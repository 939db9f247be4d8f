from typing import Any

from joblens.data.base.operator import Mapper
from joblens.data.texts.pattern_replacement import check_replacement, compiled, replace_in_rows
from joblens.data.texts.text_view import Text, text_of, with_text


class ReplaceContentMapper(Mapper):
    """Replaces what matches `pattern` by `repl`; with lists, each pattern by the text in its place, one after
    the other."""

    name = "replace_content_mapper"

    def __init__(self, pattern: str | list[str] | None = None, repl: str | list[str] = "") -> None:
        patterns = [pattern] if isinstance(pattern, str) else list(pattern or ())
        replacements = [repl] * len(patterns) if isinstance(repl, str) else list(repl)
        if len(replacements) < len(patterns):
            raise ValueError(f"'repl' has {len(replacements)} texts for {len(patterns)} patterns")
        self.pairs = list(zip(patterns, replacements, strict=False))
        self._compiled: list[tuple[Any, str]] = []

    def check(self) -> None:
        for pattern, replacement in self.pairs:
            check_replacement(self.name, pattern, replacement)

    def map(self, batch: Any) -> Any:
        if not self._compiled:
            self._compiled = [(compiled(self.name, pattern), repl) for pattern, repl in self.pairs]
        text = text_of(batch, self.text_key)
        array = text.array
        for pattern, replacement in self._compiled:
            array = replace_in_rows(Text(array), pattern, replacement)
        return with_text(batch, self.text_key, text, array)
