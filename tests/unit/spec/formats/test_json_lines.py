"""JSON and JSON5, and what is said about a text that is neither."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joblens.spec.editing.edit import same_value
from joblens.spec.formats.json_reader import json_tree, parse_json, parse_json5
from joblens.spec.formats.positions import Mark, value_of

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("// note\n1 /* more */", 1),
        ("[1, 2,]", [1, 2]),
        ("{a: 1, $b_2: 2, 'c d': 3, \"e\": 4,}", {"a": 1, "$b_2": 2, "c d": 3, "e": 4}),
        ("{\\u0061b: 1}", {"ab": 1}),
        ("{ключ: 1}", {"ключ": 1}),
        ("'it\\'s \"x\"'", 'it\'s "x"'),
        ("'one \\\ntwo'", "one two"),
        ("'one \\\r\ntwo'", "one two"),
        ("'\\x41\\u00e9\\ud83d\\ude00\\v\\0\\q'", "Aé😀\v\0q"),
        ("0xC8", 200),
        ("-0x1f", -31),
        ("+5", 5),
        (".5", 0.5),
        ("5.", 5.0),
        ("1e3", 1000.0),
        ("Infinity", math.inf),
        ("-Infinity", -math.inf),
        ("\u00a0\ufeff1", 1),
    ],
)
def test_json5_says_it_more_freely(text: str, value: Any) -> None:
    document = parse_json5(text)
    assert document.problems == ()
    assert same_value(document.value, value)


def test_nan_is_a_number_in_json5() -> None:
    assert math.isnan(parse_json5("NaN").value)


@pytest.mark.parametrize(
    ("text", "mark", "words"),
    [
        ('{\n  "a": 1,\n}', Mark(2, 9), "needs JSON5"),
        ("// note\n{}", Mark(1, 1), "comments need JSON5"),
        ("{'a': 1}", Mark(1, 2), "single quotes need JSON5"),
        ("{a: 1}", Mark(1, 2), "expected a key or '}', not 'a'"),
        ('{"a" 1}', Mark(1, 6), "expected ':' after the key 'a', not '1'"),
        ('{"a": 1 "b": 2}', Mark(1, 9), "expected ',' or '}', not '\"'"),
        ("[1, 2", Mark(1, 6), "not the end of the text"),
        ('["a', Mark(1, 2), "no closing"),
        ("[NaN]", Mark(1, 2), "expected a value, not 'NaN'"),
        ("[01]", Mark(1, 2), "expected a value, not '01'"),
        ('["\\x41"]', Mark(1, 3), "escape"),
        ("1 2", Mark(1, 3), "after the end of the document"),
        ("", Mark(1, 1), "the text ends"),
        ("9" * 5000, Mark(1, 1), "too long"),
    ],
)
def test_what_is_wrong_with_json_is_reported_with_its_place(text: str, mark: Mark, words: str) -> None:
    (problem,) = parse_json(text).problems
    assert problem.mark == mark
    assert words in problem.message
    assert problem.message.startswith("not valid JSON: ")


@pytest.mark.parametrize(
    "text", ["'a\nb'", "{a: 01}", "[1,,2]", "{,}", "'\\u12'", "'\\1'", "/* open", "{a-b: 1}"]
)
def test_what_is_not_even_json5_is_refused(text: str) -> None:
    assert "not valid JSON5" in parse_json5(text).problems[0].message


def test_all_double_keys_are_reported_at_once() -> None:
    document = parse_json('{"a": 1,\n"a": 2,\n"b": {"c": 1,\n"c": 2}}')
    assert [problem.mark for problem in document.problems] == [Mark(2, 1), Mark(4, 1)]
    assert "first defined on line 3" in document.problems[1].message
    assert document.value == {"a": 1, "b": {"c": 1}}


@given(plain, st.sampled_from([None, 2, "\t"]))
def test_the_tree_holds_what_the_library_reads(value: Any, indent: Any) -> None:
    text = json.dumps(value, indent=indent)
    for is_json5 in (False, True):
        tree, errors = json_tree(text, is_json5=is_json5)
        assert errors == []
        assert same_value(value_of(tree), json.loads(text))


@given(st.text('{}[],:"ab01.e-tr\\u\n ', max_size=20))
def test_what_the_library_refuses_is_refused_and_the_other_way_round(text: str) -> None:
    try:
        json.loads(text, parse_constant=pytest.fail)
        is_valid = True
    except ValueError:
        is_valid = False
    tree, errors = json_tree(text, is_json5=False)
    if any("duplicate key" in error.message for error in errors):
        return
    assert (tree is not None) == is_valid
