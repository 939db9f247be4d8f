"""Filters by lists of words."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joblens.data.base.operator import OperatorContext
from joblens.data.registry import lookup as registry
from joblens.data.texts.word_lists import words_of
from joblens.data.texts.words import special_characters
from joblens.model.errors import RecipeError
from joblens.model.recipes.recipe import OperatorCall

ODD = (
    "the of And THAT's 'the' (of) — the… naïve \uff21\uff22 的 the\u00a0of a\x0bb "
    "😀the 😀 sex shit, x\u2028y İs ... 12 3rd"
)
TEXTS = st.lists(
    st.lists(st.sampled_from(ODD.split(" ")) | st.text(max_size=4), max_size=8).flatmap(
        lambda words: st.sampled_from([" ", "\n", "\t", "  ", " \n"]).map(lambda gap: gap.join(words))
    ),
    max_size=5,
)


def make(name: str, **params: Any) -> Any:
    operator: Any = registry.make(OperatorCall(index=0, name=name, params=params), OperatorContext())
    operator.check()
    return operator


def batch_of(texts: list[str]) -> Any:
    return pa.record_batch({"text": pa.array(texts, pa.large_string())})


def bare(word: str) -> str:
    special = "".join(character for character in special_characters() if len(character) == 1)
    return word.lower().strip(special)


def share(text: str, listed: frozenset[str], sizes: tuple[int, ...] = (), join: str = "") -> float:
    """As the filters are defined, one text at a time."""
    words = [word for piece in re.split("[ \n\t]", text) if (word := bare(piece))]
    groups = [join.join(words[at : at + size]) for size in sizes for at in range(len(words) - size + 1)]
    everything = words + groups
    return sum(word in listed for word in everything) / len(everything) if everything else 0.0


@given(TEXTS)
def test_the_share_of_stop_words_is_that_of_each_text_by_itself(texts: list[str]) -> None:
    listed = words_of("", "stopwords", "en", None)
    found = make("stopwords_filter").stats(batch_of(texts))["stopwords_ratio"]
    assert found.to_pylist() == [share(text, listed) for text in texts]


@given(TEXTS)
def test_neighbouring_words_count_joined_where_that_is_wanted(texts: list[str]) -> None:
    listed = words_of("", "flagged_words", "all", None)
    settings = {"use_words_aug": True, "words_aug_group_sizes": [2, 3], "words_aug_join_char": "-"}
    found = make("flagged_words_filter", lang="all", **settings).stats(batch_of(texts))["flagged_words_ratio"]
    assert found.to_pylist() == [share(text, listed, (2, 3), "-") for text in texts]


def kept(operator: Any, *texts: str) -> list[str]:
    batch = batch_of(list(texts))
    return [
        str(text) for text in batch.column("text").filter(operator.keep(operator.stats(batch))).to_pylist()
    ]


def test_running_text_stays_and_a_list_of_names_goes() -> None:
    prose = "It was the best of times, and it was the worst of times."
    assert kept(make("stopwords_filter"), prose, "Berlin Paris London Rome", "") == [prose]


def test_a_text_full_of_flagged_words_goes() -> None:
    assert kept(make("flagged_words_filter"), "A calm day.", "XXX porn!", "") == ["A calm day.", ""]


@pytest.mark.parametrize("language", ["de", "en", "es", "fr", "it", "nl", "pt", "all"])
@pytest.mark.parametrize("name", ["stopwords", "flagged_words"])
def test_words_of_the_lists_can_be_met_in_a_text(name: str, language: str) -> None:
    listed = words_of("", name, language, None)
    assert len(listed) >= 50
    assert {word for word in listed if bare(word) != word} == set()


def test_a_batch_that_is_a_part_of_another_has_its_own_words() -> None:
    whole = batch_of(["the the the", "of Rome", "and"])
    found = make("stopwords_filter").stats(whole.slice(1, 2))["stopwords_ratio"]
    assert found.to_pylist() == [0.5, 1.0]


def test_lists_of_ones_own_take_the_place_of_the_built_in_ones(tmp_path: Path) -> None:
    (tmp_path / "my_stopwords_1.json").write_text(json.dumps({"xx": ["foo"]}))
    (tmp_path / "my_stopwords_2.json").write_text(json.dumps({"xx": ["bar"], "yy": ["baz"]}))
    (tmp_path / "others.json").write_text("nonsense")
    batch = batch_of(["foo bar baz the"])
    for language, ratio in (("xx", 0.5), ("yy", 0.25), ("all", 0.75)):
        operator = make("stopwords_filter", lang=language, stopwords_dir=str(tmp_path))
        assert operator.stats(batch)["stopwords_ratio"].to_pylist() == [ratio]


def test_an_unknown_language_is_refused_with_those_there_are() -> None:
    with pytest.raises(RecipeError, match="no word list for the language 'xx'") as raised:
        make("stopwords_filter", lang="xx")
    assert raised.value.hint.startswith("available: de, en, es, fr, it, nl, pt, all")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "no word list in"),
        ({"stopwords.json": "[1]"}, r"stopwords\.json is not a word list"),
        ({"stopwords.json": "{"}, r"stopwords\.json is not a word list"),
    ],
)
def test_a_folder_without_usable_lists_is_refused(
    tmp_path: Path, files: dict[str, str], message: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(RecipeError, match=message):
        make("stopwords_filter", stopwords_dir=str(tmp_path))


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="cannot be read: No such file"):
        make("flagged_words_filter", flagged_words_dir=str(tmp_path / "none"))


def test_a_tokenizer_is_refused_before_anything_runs() -> None:
    with pytest.raises(RecipeError, match="needs a tokenizer model"):
        make("stopwords_filter", tokenization=True)
