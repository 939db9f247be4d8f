"""N-gram language models in the ARPA format: log10 probabilities of whole lines, many at once."""

import gzip
from typing import Any, BinaryIO

import numpy as np
from msgspec import Struct

from joblens.model.errors import FormatError

_HEADER = b"\\data\\"
_UNKNOWN = b"<unk>"
_NEVER_SEEN = -100.0  # log10, for words of a model that has nothing to say about unknown ones
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


class NGrams(Struct, frozen=True, eq=False):
    """Of one length, sorted by a mark of 64 bits, which takes the place of the words themselves."""

    marks: Any
    probabilities: Any  # log10
    backoffs: Any  # log10, 0 where there is none

    def find(self, marks: Any) -> tuple[Any, Any]:
        """-> place of each and whether it is there."""
        places = np.searchsorted(self.marks, marks)
        places[places == len(self.marks)] = 0
        return places, (self.marks[places] == marks) if len(self.marks) else np.zeros(len(marks), bool)


class ArpaModel:
    def __init__(self, words: dict[bytes, int], orders: list[NGrams]) -> None:
        self._words = words
        self._orders = orders  # [0]: single words

    @classmethod
    def read(cls, path: str) -> "ArpaModel":
        """Raises FormatError with the line that cannot be read."""
        with _opened(path) as file:
            return _Reader(path, file).read()

    def scores(self, lines: list[bytes]) -> Any:
        """log10 of each line's probability, its beginning given and its end counted, as KenLM has it."""
        ids, starts, lengths = self._ids(lines)
        total = np.zeros(len(ids))
        open_ = np.ones(len(ids), bool)  # not settled by a longer n-gram
        open_[starts] = False  # the beginning is given
        place_in_line = np.arange(len(ids)) - np.repeat(starts, lengths)
        for order in range(len(self._orders), 0, -1):
            able = np.flatnonzero(open_ & (place_in_line >= order - 1))
            places, is_there = self._orders[order - 1].find(_marks(ids, able, order))
            total[able[is_there]] += self._orders[order - 1].probabilities[places[is_there]]
            open_[able[is_there]] = False
            if order > 1:
                self._add_backoffs(total, ids, able[~is_there], order - 1)
        total[open_] += _NEVER_SEEN
        return np.add.reduceat(total, starts) if len(starts) else np.zeros(0)

    def _add_backoffs(self, total: Any, ids: Any, at: Any, order: int) -> None:
        """For words that are not known behind their last `order` words: what that context itself costs."""
        places, is_there = self._orders[order - 1].find(_marks(ids, at - 1, order))
        total[at[is_there]] += self._orders[order - 1].backoffs[places[is_there]]

    def _ids(self, lines: list[bytes]) -> tuple[Any, Any, Any]:
        """Numbers of all words with <s> and </s>, where each line begins, and how many each has."""
        begin, end = self._words.get(b"<s>", 0), self._words.get(b"</s>", 0)
        found: list[int] = []
        lengths = []
        get = self._words.get
        for line in lines:
            words = line.split()
            found.append(begin)
            found += [get(word, 0) for word in words]
            found.append(end)
            lengths.append(len(words) + 2)
        counts = np.array(lengths, np.int64)
        return np.array(found, np.uint64), np.cumsum(counts) - counts, counts


def is_arpa(path: str) -> bool:
    try:
        with _opened(path) as file:
            return _HEADER in file.read(4096)
    except (OSError, EOFError):
        return False


def _opened(path: str) -> BinaryIO | gzip.GzipFile:
    with open(path, "rb") as file:
        is_packed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if is_packed else open(path, "rb")


def _marks(ids: Any, ends: Any, order: int) -> Any:
    """Of the `order` words that end at each of these places."""
    marks = np.zeros(len(ends), np.uint64)
    for back in range(order - 1, -1, -1):
        marks = _mixed(marks, ids[ends - back])
    return marks


def _mixed(marks: Any, ids: Any) -> Any:
    with np.errstate(over="ignore"):
        marks = (marks ^ (ids + np.uint64(1))) * _MULTIPLIER
        marks ^= marks >> np.uint64(29)
        marks *= np.uint64(0xBF58476D1CE4E5B9)
    return marks ^ (marks >> np.uint64(32))


class _Reader:
    def __init__(self, path: str, file: BinaryIO | gzip.GzipFile) -> None:
        self._path = path
        self._lines = enumerate(file, 1)
        self._words: dict[bytes, int] = {_UNKNOWN: 0}

    def read(self) -> ArpaModel:
        counts = self._counts()
        orders = []
        for order, count in enumerate(counts, 1):
            self._skip_to(b"\\%d-grams:" % order)
            orders.append(self._section(order, count))
        self._skip_to(b"\\end\\")
        return ArpaModel(self._words, orders)

    def _counts(self) -> list[int]:
        self._skip_to(_HEADER)
        counts: list[int] = []
        for number, line in self._lines:
            if not line.strip():
                break
            try:
                counts.append(int(line.split(b"=")[1]))
            except (IndexError, ValueError):
                raise self._wrong(number, "no count of n-grams") from None
        if not counts:
            raise self._wrong(0, "it counts no n-grams")
        return counts

    def _skip_to(self, wanted: bytes) -> None:
        for number, line in self._lines:
            if line.strip() == wanted:
                return
            if line.strip() and wanted != _HEADER:
                raise self._wrong(number, f"{wanted.decode()} should stand here")
        raise self._wrong(0, f"{wanted.decode()} is missing")

    def _section(self, order: int, count: int) -> NGrams:
        probabilities, backoffs = np.zeros(count, np.float32), np.zeros(count, np.float32)
        ids = np.zeros((order, count), np.uint64)
        for at in range(count):
            number, line = next(self._lines, (0, b""))
            parts = line.split()
            try:
                probabilities[at] = float(parts[0])
                words = parts[1 : order + 1]
                ids[:, at] = [self._id(word, order) for word in words]
                if len(parts) > order + 1:
                    backoffs[at] = float(parts[order + 1])
            except (IndexError, ValueError, KeyError):
                raise self._wrong(number, f"no n-gram of {order} words with its probability") from None
        marks = np.zeros(count, np.uint64)
        for column in ids:
            marks = _mixed(marks, column)
        by_mark = np.argsort(marks)
        return NGrams(marks[by_mark], probabilities[by_mark], backoffs[by_mark])

    def _id(self, word: bytes, order: int) -> int:
        if order > 1:
            return self._words[word]
        return self._words.setdefault(_UNKNOWN if word.lower() == _UNKNOWN else word, len(self._words))

    def _wrong(self, number: int, what: str) -> FormatError:
        where = f"line {number} of " if number else ""
        return FormatError(f"{where}{self._path} is not in the ARPA format: {what}")
