"""Pattern replacement in text columns, and mappers that remove matches of a pattern."""

import re
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from joblens.data.base.operator import Mapper, RowErrors
from joblens.data.texts.text_view import (
    BLOCK,
    Bits,
    Text,
    first_from,
    last_before,
    spliced,
    text_array,
    text_of,
    with_text,
)
from joblens.model.errors import MissingExtra, RecipeError, how_to_install

LONGEST_MATCH_S = 5.0  # per row: a pattern with excessive backtracking would never finish


class TokenPattern(Struct, frozen=True):
    """Pattern whose matches contain no white space, so that each lies in one token.

    No match depends on text outside its token.
    """

    pattern: str
    ascii_pattern: str  # the same for ASCII tokens in RE2's syntax, which is linear in time
    find: Callable[[Text], Any]  # bytes of which every match has at least one; the fewer, the faster
    is_ascii_enough: bool = False  # the second pattern is valid for all tokens
    # ASCII of equal length that matches at the same positions, for a token that is not ASCII; "": none
    stand_in: Callable[[str], str] | None = None


def compiled(operator: str, pattern: str) -> Any:
    """Compiles a pattern. Raises RecipeError."""
    regex = regex_package()
    try:
        return regex.compile(unquoted(pattern), flags=regex.DOTALL)
    except regex.error as error:
        raise RecipeError(f"{operator}: invalid pattern {pattern!r}: {error}") from error


def check_replacement(operator: str, pattern: str, replacement: str) -> None:
    """Raises RecipeError for an invalid pattern, or a replacement that refers to groups the pattern lacks."""
    compiled(operator, pattern)
    regex = regex_package()
    try:
        # Replacements are parsed only on a match, and this pattern always matches.
        regex.compile(f"(?:{unquoted(pattern)})?", flags=regex.DOTALL).sub(replacement, "")
    except (regex.error, IndexError) as error:
        raise RecipeError(f"{operator}: invalid replacement {replacement!r}: {error}") from error


def unquoted(pattern: str) -> str:
    """Removes the r'' that some recipes write around a pattern."""
    is_quoted = len(pattern) > 2 and pattern[:2] in {"r'", 'r"'} and pattern[-1] == pattern[1]
    return pattern[2:-1] if is_quoted else pattern


def replace_tokens(text: Text, what: TokenPattern, replacement: str) -> Any:
    """Returns the column; the same array if nothing matches."""
    positions = what.find(text)
    if not len(positions):
        return text.array
    starts, ends = _tokens(text, positions)
    content = memoryview(text.data)
    tokens = [bytes(content[start:end]) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    replaced = _replaced(tokens, what, replacement)
    changed = [index for index, token in enumerate(tokens) if token != replaced[index]]
    if not changed:
        return text.array
    return spliced(text, starts[changed], ends[changed], [replaced[index] for index in changed])


def replace_in_rows(text: Text, pattern: Any, replacement: str) -> Any:
    """Returns the column;
    the same array if nothing matches. Raises RowErrors for all rows that take too long.
    """
    changed: dict[int, str] = {}
    slow: list[int] = []
    for index, row in enumerate(text.array.to_pylist()):
        try:
            replaced = pattern.sub(replacement, row, timeout=LONGEST_MATCH_S)
        except TimeoutError:
            slow.append(index)
        else:
            if replaced != row:
                changed[index] = replaced
    if slow:
        reason = f"the pattern takes longer than {LONGEST_MATCH_S:g}s on this text"
        raise RowErrors(dict.fromkeys(slow, reason))
    return with_rows(text, changed)


def with_changes(text: Text, rows: Any, change: Callable[[str], str]) -> Any:
    """Returns the column with `change` applied to these rows; the same array when none differs."""
    changed: dict[int, str] = {}
    for row in rows.tolist():
        old = text.row(row)
        new = change(old)
        if new != old:
            changed[row] = new
    return with_rows(text, changed)


def with_rows(text: Text, changed: dict[int, str]) -> Any:
    """Returns the column with other texts in some rows; the same array if there are none."""
    if not changed:
        return text.array
    rows = np.fromiter(changed, np.int64, len(changed))
    starts, ends = text.offsets[rows], text.offsets[rows + 1]
    if (starts == ends).any():  # no match to replace
        rows_now = text.array.to_pylist()
        for index, row in changed.items():
            rows_now[index] = row
        return pa.array(rows_now, pa.large_string())
    return spliced(text, starts, ends, [row.encode() for row in changed.values()])


def find_bytes(
    text: Text, is_candidate: Callable[[Any], Any], confirm: Callable[[Text, Any], Any] | None = None
) -> Any:
    """Returns positions that `is_candidate` selects in blocks of bytes, and `confirm` among these."""
    found = [np.zeros(0, np.int64)]
    for start in range(0, text.size, BLOCK):
        positions = np.flatnonzero(is_candidate(text.data[start : start + BLOCK])) + start
        found.append(
            positions if confirm is None or not len(positions) else positions[confirm(text, positions)]
        )
    return np.concatenate(found)


def around(text: Text, positions: Any, step: int) -> Any:
    """Returns the bytes at an offset of `step`; 0 outside the column.

    The byte may belong to a neighbouring row, which is harmless for candidates.
    """
    moved = positions + step
    inside = (moved >= 0) & (moved < text.size)
    return np.where(inside, text.data[np.where(inside, moved, 0)], 0)


def _tokens(text: Text, positions: Any) -> tuple[Any, Any]:
    """Returns each token with one of these positions, once: between blanks and the ends of the row."""
    blanks = Bits(text.size)
    for start in range(0, text.size, BLOCK):
        piece = text.data[start : start + BLOCK]
        blanks.fill(start, (piece == 0x20) | (piece == 0x0A))
    rows = text.rows_of(positions)
    starts = np.maximum(last_before(blanks, positions) + 1, text.offsets[rows])
    ends = np.minimum(first_from(blanks, positions, text.size), text.offsets[rows + 1])
    starts, first = np.unique(starts, return_index=True)
    return starts, ends[first]


def _replaced(tokens: list[bytes], what: TokenPattern, replacement: str) -> list[bytes]:
    if "\\" in replacement:  # it refers to groups, as `regex` numbers them
        return _by_regex(tokens, what, replacement)
    replaced = list(tokens)
    others = (
        [] if what.is_ascii_enough else [index for index, token in enumerate(tokens) if not token.isascii()]
    )
    slow = set(others)
    quick = [index for index in range(len(tokens)) if index not in slow] if slow else range(len(tokens))
    _put(replaced, quick, _by_re2([tokens[index] for index in quick], what, replacement))
    stand_ins = {index: what.stand_in(tokens[index].decode()) for index in others} if what.stand_in else {}
    standing = [index for index in others if stand_ins.get(index)]
    marked = _by_re2([stand_ins[index].encode() for index in standing], what, "\x01\\0\x02")
    for index, marks in zip(standing, marked, strict=True):
        replaced[index] = _at_marks(tokens[index].decode(), marks.decode(), replacement).encode()
    rest = [index for index in others if not stand_ins.get(index)]
    _put(replaced, rest, _by_regex([tokens[index] for index in rest], what, replacement))
    return replaced


def _put(replaced: list[bytes], positions: Sequence[int], values: list[bytes]) -> None:
    for index, value in zip(positions, values, strict=True):
        replaced[index] = value


def _at_marks(token: str, marked: str, replacement: str) -> str:
    """Replaces the parts of the token that are marked in its stand-in."""
    pieces: list[str] = []
    position = 0
    for number, part in enumerate(_MARK.split(marked)):
        pieces.append(replacement if number % 2 else token[position : position + len(part)])
        position += len(part)
    return "".join(pieces)


_MARK = re.compile("[\x01\x02]")


def _by_regex(tokens: list[bytes], what: TokenPattern, replacement: str) -> list[bytes]:
    if not tokens:
        return []
    pattern = regex_package().compile(what.pattern)
    return [pattern.sub(replacement, token.decode()).encode() for token in tokens]


def _by_re2(tokens: list[bytes], what: TokenPattern, replacement: str) -> list[bytes]:
    offsets = np.zeros(len(tokens) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, tokens), np.int64, len(tokens)), out=offsets[1:])
    array = text_array(b"".join(tokens), offsets)
    done = pc.replace_substring_regex(array, pattern=what.ascii_pattern, replacement=replacement)
    found: list[bytes] = done.cast(pa.large_binary()).to_pylist()
    return found


def regex_package() -> Any:
    try:
        import regex
    except ImportError as error:
        raise MissingExtra(
            "patterns need the package regex, which is not installed", hint=how_to_install("data")
        ) from error
    return regex


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
