"""Shingles of texts: case and character folding, tokens, and options of the similarity deduplicators."""

import itertools
import re
import string
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from msgspec import Struct

from joblens.data.base.operator import GlobalOperator
from joblens.data.texts.pattern_replacement import LONGEST_MATCH_S, regex_package
from joblens.model.errors import JobCannotGoOn, MissingExtra, RecipeError

_WHITE = " \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f"  # ASCII characters that str.strip removes
_WHITE_BYTES = _WHITE.encode()
# Unicode white space, digits, ASCII punctuation. re's own \s also includes four separators.
_NO_CHARACTER = re.compile(
    rf"[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\d{re.escape(string.punctuation)}]+"
)


class Texts(Struct, frozen=True, eq=False):
    """Texts concatenated in one UTF-8 buffer; text i ends where i + 1 starts."""

    data: Any  # uint8
    offsets: Any  # int64, one more than texts

    @property
    def count(self) -> int:
        return len(self.offsets) - 1

    def wide(self) -> Any:
        """Returns the indexes of texts with non-ASCII characters."""
        if not len(self.data) or self.data.max() < 0x80:
            return np.zeros(0, np.int64)
        positions = np.flatnonzero(self.data >= 0x80)
        return np.unique(np.searchsorted(self.offsets, positions, side="right") - 1)

    def slice(self, start: int, end: int) -> "Texts":
        offsets = self.offsets[start : end + 1]
        return Texts(self.data[offsets[0] : offsets[-1]], offsets - offsets[0])


def texts_of(column: Any) -> Texts:
    """Returns an Arrow column of strings as Texts. Nulls become empty texts.

    Does not copy a large_string column without nulls.
    """
    if column.null_count:
        column = pc.fill_null(column, "")
    if column.type != pa.large_string():
        column = column.cast(pa.large_string())
    _, offsets, data = column.buffers()
    if not len(column):
        return Texts(np.zeros(0, np.uint8), np.zeros(1, np.int64))
    positions = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    block = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    return Texts(block[positions[0] : positions[-1]], positions - positions[0])


def lowered(texts: Texts) -> Texts:
    """Lowers texts as str.lower does."""
    data = texts.data
    is_capital = (data - np.uint8(65)) < 26  # wraps around below "A"
    small = Texts(data + (is_capital.view(np.uint8) << 5), texts.offsets)
    wide = texts.wide()
    # Non-ASCII characters are lowered one by one, from the original text.
    return replaced(small, wide, [text.lower() for text in _strings(texts, wide)])


def without_pattern(texts: Texts, pattern: Any) -> Texts:
    """Removes matches as pattern.sub("", text) does."""
    before = every_string(texts)
    after = [pattern.sub("", text) for text in before]
    changed = np.array([i for i, text in enumerate(after) if len(text) != len(before[i])], np.int64)
    return replaced(texts, changed, [after[i] for i in changed])


def only_characters(texts: Texts) -> Texts:
    """Removes white space, digits and ASCII punctuation."""
    table = np.array([not _NO_CHARACTER.match(chr(code)) for code in range(128)] + [True] * 128)
    narrow = without_bytes(texts, table[texts.data])
    wide = texts.wide()
    return replaced(narrow, wide, [_NO_CHARACTER.sub("", text) for text in _strings(texts, wide)])


def without_bytes(texts: Texts, keep: Any) -> Texts:
    """Keeps only the bytes for which `keep` is true."""
    data = texts.data[keep]
    dropped = np.flatnonzero(~keep)
    return Texts(data, texts.offsets - np.searchsorted(dropped, texts.offsets))


def stripped_bytes(texts: Texts) -> list[Any]:
    """Yields each text as str.strip leaves it, as hashable bytes."""
    view = memoryview(texts.data)
    offsets = texts.offsets.tolist()
    found: list[Any] = [view[start:end] for start, end in itertools.pairwise(offsets)]
    for i in _with_odd_edges(texts).tolist():
        found[i] = _stripped(bytes(found[i]))
    return found


def replaced(texts: Texts, which: Any, by: list[str]) -> Texts:
    """Replaces the texts with these indexes, in order."""
    return replaced_bytes(texts, which, [text.encode() for text in by])


def replaced_bytes(texts: Texts, which: Any, by: list[bytes]) -> Texts:
    if not len(which):
        return texts
    pieces: list[Any] = []
    done = 0
    for i, piece in zip(which.tolist(), by, strict=True):
        pieces += (texts.data[texts.offsets[done] : texts.offsets[i]], np.frombuffer(piece, np.uint8))
        done = i + 1
    pieces.append(texts.data[texts.offsets[done] :])
    lengths = np.diff(texts.offsets)
    lengths[which] = [len(piece) for piece in by]
    offsets = np.zeros(texts.count + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return Texts(np.concatenate(pieces), offsets)


def every_string(texts: Texts) -> list[str]:
    return _strings(texts, np.arange(texts.count))


def mapped_wide(texts: Texts, change: Callable[[str], bytes]) -> tuple[Any, list[bytes]]:
    """Returns the indexes of non-ASCII texts, and the result of `change` for each."""
    wide = texts.wide()
    return wide, [change(text) for text in _strings(texts, wide)]


def _strings(texts: Texts, which: Any) -> list[str]:
    view = memoryview(texts.data)
    starts, ends = texts.offsets[which].tolist(), texts.offsets[which + 1].tolist()
    return [str(view[start:end], "utf-8") for start, end in zip(starts, ends, strict=True)]


def _with_odd_edges(texts: Texts) -> Any:
    """Returns texts whose first or last byte may belong to white space."""
    is_plain = np.zeros(256, np.bool_)
    is_plain[0x21:0x80] = True
    filled = np.flatnonzero(np.diff(texts.offsets))
    first = texts.data[texts.offsets[filled]]
    last = texts.data[texts.offsets[filled + 1] - 1]
    return filled[~(is_plain[first] & is_plain[last])]


def _stripped(text: bytes) -> bytes:
    text = text.strip(_WHITE_BYTES)
    if text and (text[0] >= 0x80 or text[-1] >= 0x80):
        return text.decode().strip().encode()
    return text


_SPACE = 0x20
_MARK = 0xFF  # a byte that never occurs in UTF-8


class Tokens(Struct, frozen=True, eq=False):
    """Tokens of all texts, concatenated. Adjacent tokens of one text are adjacent in `data`."""

    data: Any  # uint8
    starts: Any  # int64
    ends: Any
    counts: Any  # tokens per text


class Shingles(Struct, frozen=True, eq=False):
    data: Any
    starts: Any
    lengths: Any
    counts: Any  # shingles per text; 0 if it has fewer tokens than a shingle


def shingled(tokens: Tokens, window: int) -> Shingles:
    counts = np.maximum(tokens.counts - (window - 1), 0)
    of_text = np.repeat(np.arange(len(tokens.counts)), tokens.counts)
    last = len(of_text) - (window - 1)
    if last <= 0:
        return Shingles(tokens.data, np.zeros(0, np.int64), np.zeros(0, np.int64), counts)
    is_whole = of_text[:last] == of_text[window - 1 :]
    starts = tokens.starts[:last][is_whole]
    return Shingles(tokens.data, starts, tokens.ends[window - 1 :][is_whole] - starts, counts)


def split_at_spaces(texts: Texts) -> Tokens:
    """Splits at blanks (no other white space); several blanks become one."""
    is_space = texts.data == _SPACE
    filled = np.flatnonzero(np.diff(texts.offsets))
    is_start = np.ones(len(is_space), np.bool_)
    is_start[1:] = is_space[:-1]
    is_start[texts.offsets[filled]] = True
    is_start &= ~is_space
    is_end = np.ones(len(is_space), np.bool_)
    is_end[:-1] = is_space[1:]
    is_end[texts.offsets[filled + 1] - 1] = True
    is_end &= ~is_space
    starts, ends = np.flatnonzero(is_start), np.flatnonzero(is_end) + 1
    bounds = np.searchsorted(starts, texts.offsets)
    is_joined = np.ones(len(starts), np.bool_)  # with the token after it
    is_joined[bounds[1:][bounds[1:] > 0] - 1] = False
    if np.any((starts[1:] - ends[:-1] != 1) & is_joined[:-1]):
        keep = ~is_space
        keep[ends[is_joined]] = True
        lengths = ends - starts
        ends = np.cumsum(lengths + is_joined) - is_joined
        return Tokens(texts.data[keep], ends - lengths, ends, np.diff(bounds))
    return Tokens(texts.data, starts, ends, np.diff(bounds))


def split_at_characters(texts: Texts) -> Tokens:
    starts = np.flatnonzero((texts.data & 0xC0) != 0x80)
    ends = np.append(starts[1:], len(texts.data))[: len(starts)]
    return Tokens(texts.data, starts, ends, np.diff(np.searchsorted(starts, texts.offsets)))


def split_at_punctuation(texts: Texts) -> Tokens:
    """Splits after every punctuation mark; tokens may be empty and are joined by a blank."""
    table = np.arange(256, dtype=np.uint8)
    table[[code for code in range(128) if unicodedata.category(chr(code))[0] == "P"]] = _MARK
    wide, changed = mapped_wide(texts, _marked)
    texts = replaced_bytes(Texts(table[texts.data], texts.offsets), wide, changed)
    marks = np.flatnonzero(texts.data == _MARK)
    data = texts.data.copy()
    data[marks] = _SPACE
    starts = np.sort(np.concatenate((texts.offsets[:-1], marks + 1)))
    ends = np.sort(np.concatenate((texts.offsets[1:], marks)))
    return Tokens(data, starts, ends, np.diff(np.searchsorted(marks, texts.offsets)) + 1)


def split_by(texts: Texts, pieces_of: Callable[[str], Sequence[str]]) -> Tokens:
    """Splits with an external tokenizer; tokens are joined without a separator."""
    pieces = [[piece.encode() for piece in pieces_of(text)] for text in every_string(texts)]
    flat = [piece for of_text in pieces for piece in of_text]
    ends = np.cumsum([len(piece) for piece in flat], dtype=np.int64)
    starts = np.concatenate((np.zeros(min(1, len(ends)), np.int64), ends[:-1]))
    counts = np.array([len(of_text) for of_text in pieces], np.int64)
    return Tokens(np.frombuffer(b"".join(flat), np.uint8), starts, ends, counts)


def _marked(text: str) -> bytes:
    return text.translate(_marks()).encode("utf-8", "surrogateescape")


@cache
def _marks() -> dict[int, str]:
    every = (code for code in range(0x110000) if unicodedata.category(chr(code))[0] == "P")
    return dict.fromkeys(every, "\udcff")  # encoded as the one byte


Tokenization = Literal["space", "punctuation", "character", "sentencepiece"]
_BYTES_AT_ONCE = 4 << 20  # of text; intermediate data takes about twenty times as much


class SimilarTexts(GlobalOperator):
    tokenization: str
    window_size: int
    lowercase: bool
    ignore_pattern: str | None
    tokenizer_model: str | None = None
    _pattern: Any = None
    _pieces_of: Any = None

    def check(self) -> None:
        if self.ignore_pattern:
            self._pattern = _compiled(self.name, self.ignore_pattern)
        if self.tokenization == "sentencepiece":
            self._pieces_of = _sentencepiece(self.name, self.tokenizer_model)

    def shingles_of(self, texts: Texts) -> Shingles:
        if (self.ignore_pattern and self._pattern is None) or (
            self.tokenization == "sentencepiece" and self._pieces_of is None
        ):
            self.check()
        if self.lowercase:
            texts = lowered(texts)
        if self._pattern is not None:
            texts = without_pattern(texts, self._pattern)
        return shingled(self._tokens(texts), self.window_size)

    def _tokens(self, texts: Texts) -> Tokens:
        if self.tokenization == "space":
            return split_at_spaces(texts)
        if self.tokenization == "character":
            return split_at_characters(texts)
        if self.tokenization == "punctuation":
            return split_at_punctuation(texts)
        return split_by(texts, self._pieces_of)


def distinct_texts(column: Any) -> tuple[Any, Any]:
    """Returns the distinct texts as a column, and the index of each row's text: copies are processed once."""
    if column.null_count:
        column = pc.fill_null(column, "")
    texts = texts_of(column)
    view, offsets = memoryview(texts.data), texts.offsets.tolist()
    digest = xxhash.xxh3_128_digest
    numbers: dict[bytes, int] = {}
    which = [
        numbers.setdefault(digest(view[start:end]), len(numbers))
        for start, end in itertools.pairwise(offsets)
    ]
    positions = np.array(which, np.int64)
    firsts = np.zeros(len(numbers), np.int64)
    firsts[positions[::-1]] = np.arange(len(positions))[::-1]
    return column.take(firsts) if len(numbers) < len(column) else column, positions


def in_slices(column: Any) -> Iterator[tuple[int, Texts]]:
    """Yields slices of the texts, with the index of the first."""
    texts = texts_of(column)
    start = 0
    while start < texts.count:
        limit = texts.offsets[start] + _BYTES_AT_ONCE
        end = max(start + 1, int(np.searchsorted(texts.offsets, limit, side="right")) - 1)
        yield start, texts.slice(start, end)
        start = end


class _Bounded:
    """Pattern that gives up on a text after a time limit."""

    def __init__(self, pattern: Any) -> None:
        self._pattern = pattern

    def sub(self, replacement: str, text: str) -> str:
        try:
            return str(self._pattern.sub(replacement, text, timeout=LONGEST_MATCH_S))
        except TimeoutError:
            raise JobCannotGoOn(
                f"'ignore_pattern' takes longer than {LONGEST_MATCH_S:g}s on a text",
                hint="nested repeats such as (a+)+ may never end",
            ) from None


def _compiled(name: str, pattern: str) -> Any:
    """Compiles a pattern. Raises RecipeError, and MissingExtra if the package regex is not installed."""
    regex = regex_package()
    try:
        return _Bounded(regex.compile(pattern))
    except regex.error as error:
        raise RecipeError(f"{name}: 'ignore_pattern' is not a valid regular expression: {error}") from error


def _sentencepiece(name: str, model: str | None) -> Any:
    if not model:
        raise RecipeError(
            f"{name}: tokenization 'sentencepiece' needs 'tokenizer_model', the path of a model"
        )
    try:
        import sentencepiece  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError as error:
        raise MissingExtra(
            f"{name}: tokenization 'sentencepiece' needs a package that is not installed",
            hint="pip install sentencepiece",
        ) from error
    try:
        processor = sentencepiece.SentencePieceProcessor(model_file=model)
    except (OSError, RuntimeError) as error:
        raise RecipeError(f"{name}: the model {model} cannot be read: {error}") from error
    return lambda text: processor.encode(text, out_type=str)
