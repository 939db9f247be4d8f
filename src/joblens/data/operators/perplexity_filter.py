import os
from typing import Any

import numpy as np
import pyarrow as pa

from joblens.data.base.operator import Filter
from joblens.data.rows.ranges import within
from joblens.data.texts.arpa_model import ArpaModel, is_arpa
from joblens.data.texts.text_view import text_of
from joblens.model.errors import MissingExtra, RecipeError


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
                f"{self.name} needs a language model, and joblens brings none",
                hint="model_path: an ARPA file, such as KenLM's lmplz writes; {lang} in it is replaced",
            )
        for path in (self.model_path, self.tokenizer_path):
            if path is not None and not os.path.isfile(path):
                raise RecipeError(f"{self.name}: there is no file {path}")
        if not is_arpa(self.model_path):
            _library("kenlm", f"{self.model_path} is no ARPA file, and KenLM's binary ones")
        if self.tokenizer_path is not None:
            _library("sentencepiece", "tokenizer_path")

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
        """In the worker that needs it: models are large, and the front only checks."""
        if self._model is None:
            assert self.model_path is not None
            is_plain = is_arpa(self.model_path)
            self._model = ArpaModel.read(self.model_path) if is_plain else _KenlmModel(self.model_path)
            self._tokens = _words if self.tokenizer_path is None else _pieces(self.tokenizer_path)


class _KenlmModel:
    def __init__(self, path: str) -> None:
        self._model = _library("kenlm", "a binary model").Model(path)

    def scores(self, lines: list[bytes]) -> Any:
        return np.array([self._model.score(line.decode()) for line in lines], np.float64)


def _words(text: str) -> list[str]:
    return [word for word in text.replace("\n", " ").replace("\t", " ").split(" ") if word]


def _pieces(path: str) -> Any:
    return (
        _library("sentencepiece", "tokenizer_path").SentencePieceProcessor(model_file=path).encode_as_pieces
    )


def _for_language(path: str | None, language: str) -> str | None:
    return None if path is None else os.path.expanduser(path.replace("{lang}", language))


def _library(name: str, what_needs_it: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtra(
            f"perplexity_filter: {what_needs_it} need {name}, which is not installed",
            hint=f"pip install {name}",
        ) from error
