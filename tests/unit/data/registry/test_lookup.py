"""Operators by name, and what they may be told."""

import sys
from typing import Any

import pytest

from joblens.data.base.operator import Filter, GlobalOperator, Mapper, OperatorContext
from joblens.data.operators import MODULES
from joblens.data.registry import lookup as registry
from joblens.data.registry.lookup import type_name
from joblens.model.errors import RecipeError, UnknownOperator
from joblens.model.recipes.recipe import OperatorCall


def call(name: str, **params: Any) -> OperatorCall:
    return OperatorCall(index=0, name=name, params=params)


def make(name: str, **params: Any) -> Any:
    return registry.make(call(name, **params), OperatorContext(text_key="body"))


@pytest.mark.parametrize("name", MODULES)
def test_every_operator_of_the_table_is_there_by_its_own_name(name: str) -> None:
    kind = registry.find(name)
    assert kind.name == name
    assert issubclass(kind, Mapper | Filter | GlobalOperator)
    assert name.endswith(registry.kind_of(kind))


def test_an_operator_gets_its_parameters_and_the_recipes_text_field() -> None:
    operator = make("stopwords_filter", lang="de", min_ratio=1)
    assert (operator.lang, operator.least, operator.text_key) == ("de", 1.0, "body")


def test_an_operator_may_be_reported_another_text_field() -> None:
    assert make("stopwords_filter", text_key="title").text_key == "title"


def test_an_unknown_operator_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(
        UnknownOperator, match=r"unknown operator 'stopword_filter'; did you mean 'stopwords_filter'\?"
    ):
        make("stopword_filter")


def test_a_word_that_is_like_no_operator_gets_no_guess() -> None:
    with pytest.raises(UnknownOperator, match=r"unknown operator 'qqq'$"):
        make("qqq")
    with pytest.raises(
        UnknownOperator, match=r"'image_aspect_ratio_filter'$"
    ) as refused:  # like others by its end
        make("image_aspect_ratio_filter")
    assert f"for all {len(registry.names())}" in refused.value.hint


def test_an_unknown_parameter_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(
        RecipeError, match=r"stopwords_filter has no parameter 'min_ration'; did you mean 'min_ratio'\?"
    ):
        make("stopwords_filter", min_ration=0.5)


def test_all_wrong_parameters_are_reported_at_once() -> None:
    problems = registry.problems_of(call("stopwords_filter", nonsense=1, min_ratio="much", lang="en"))
    assert [problem.parameter for problem in problems] == ["nonsense", "min_ratio"]
    assert problems[1].message == "stopwords_filter: 'min_ratio' must be a number, not 'much'"


def test_a_wrong_shared_parameter_is_reported() -> None:
    with pytest.raises(RecipeError, match="'text_key' must be text, not 5"):
        make("stopwords_filter", text_key=5)


def test_a_value_beyond_its_limits_is_reported_with_the_limit() -> None:
    with pytest.raises(RecipeError, match=r"must be list of int, each at least 1, not a list"):
        make("stopwords_filter", words_aug_group_sizes=[0])
    with pytest.raises(RecipeError, match=r"'select_ratio' must be at most 1, not 1\.5"):
        make("random_selector", select_ratio=1.5)


def test_a_range_that_no_row_can_be_in_is_refused() -> None:
    with pytest.raises(RecipeError, match="'min_len' is 9, above 'max_len', 5: no row matches"):
        make("text_length_filter", min_len=9, max_len=5)
    make("text_length_filter", min_len=9, max_len=5, reversed_range=True)


def test_numbers_that_no_plan_can_hold_are_refused() -> None:
    with pytest.raises(RecipeError, match="'min_len' must be a number of at most 18 digits, not 1000"):
        make("text_length_filter", min_len=10**30)
    with pytest.raises(RecipeError, match=r"'max_ratio' must be a number, not \.nan"):
        make("alphanumeric_filter", max_ratio=float("nan"))


@pytest.mark.parametrize(("written", "read"), [(1e3, 1000), (float("inf"), sys.maxsize), (7, 7)])
def test_whole_numbers_may_be_written_as_fractions_that_are_whole(written: float, read: int) -> None:
    assert make("text_length_filter", max_len=written).max_len == read


def test_a_fraction_where_a_whole_number_is_wanted_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"'max_len' must be a whole number, not 1\.5"):
        make("text_length_filter", max_len=1.5)


def test_settings_of_other_systems_that_change_no_row_are_taken_and_reported() -> None:
    result = call("text_length_filter", num_proc=4, batch_size=100, min_len=2)
    registry.make(result, OperatorContext())
    assert registry.ignored_parameters(result) == ("num_proc", "batch_size")


def test_filters_take_how_their_range_is_read() -> None:
    operator = make("text_length_filter", reversed_range=True)
    assert operator.reversed_range
    with pytest.raises(RecipeError, match="clean_links_mapper has no parameter 'reversed_range'"):
        make("clean_links_mapper", reversed_range=True)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (int | None, "int or null"),
        (list[int], "list of int"),
        (str | list[str], "str or list of str"),
        (dict[str, int], "mapping"),
        (Any, "anything"),
    ],
)
def test_types_are_reported_in_words(wanted: Any, words: str) -> None:
    assert type_name(wanted) == words
