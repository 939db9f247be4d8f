"""YAML 1.2 core, with places, and nothing accepted silently."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from joblens.spec.formats import yaml_reader
from joblens.spec.formats.yaml_reader import Mark, Path, parse_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"),
        ("yes", "yes"),
        ("no", "no"),
        ("1:30", "1:30"),
        ("012", 12),
        ("0o14", 12),
        ("0x1F", 31),
        ("1_000", "1_000"),
        ("1e3", 1000.0),
        ("-.5", -0.5),
        (".inf", float("inf")),
        ("-.INF", float("-inf")),
        ("2026-11-15", "2026-11-15"),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("Null", None),
        ("'true'", "true"),
        ('"12"', "12"),
        ("!!str 12", "12"),
        ("5s", "5s"),
        ("<<", "<<"),
    ],
)
def test_a_scalar_means_what_yaml_1_2_says(text: str, value: Any) -> None:
    document = parse_yaml(f"key: {text}\n")
    assert document.problems == ()
    assert document.value == {"key": value}
    assert type(document.value["key"]) is type(value)


def test_keys_stay_words() -> None:
    assert parse_yaml("on: 1\n12: 2\nnull: 3\n").value == {"on": 1, "12": 2, "null": 3}


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "\n\n"])
def test_an_empty_document_is_none(text: str) -> None:
    document = parse_yaml(text)
    assert document.value is None
    assert document.problems == ()


def test_every_key_and_item_has_its_place() -> None:
    marks = parse_yaml("top:\n  list:\n    - a\n    - b: 1\n").marks
    assert marks[("top",)] == Mark(1, 1)
    assert marks[("top", "list")] == Mark(2, 3)
    assert marks[("top", "list", 0)] == Mark(3, 7)
    assert marks[("top", "list", 1, "b")] == Mark(4, 7)


def test_a_key_given_twice_is_a_problem_at_the_second() -> None:
    document = parse_yaml("a: 1\nb: 2\na: 3\n")
    assert [problem.mark for problem in document.problems] == [Mark(3, 1)]
    assert "first defined on line 1" in document.problems[0].message
    assert document.value == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: [1, 2\nb: 3\n", 2, "not valid YAML"),
        ("a: 1\n\tb: 2\n", 2, "not valid YAML"),
        ("a: 1\n---\nb: 2\n", 2, "not valid YAML"),
        ("a: *nowhere\n", 1, "not valid YAML"),
        ("a: \x07\n", 1, "not valid YAML"),
        ("a: 1\nb: !!python/object:os.system {}\n", 2, "unknown tag"),
        ("a: !!timestamp 2026-11-15\n", 1, "unknown tag"),
        ("a: !!int many\n", 1, "'many' is not a int"),
        ("a: !!bool perhaps\n", 1, "'perhaps' is not a bool"),
        ("? [1, 2]\n: 3\n", 1, "a key must be a scalar"),
        ("a: &loop\n  b: *loop\n", 2, "contains it"),
    ],
)
def test_what_is_wrong_is_reported_with_its_line(text: str, line: int, words: str) -> None:
    problems = parse_yaml(text).problems
    assert len(problems) == 1
    assert problems[0].mark.line == line
    assert words in problems[0].message


def test_a_small_file_cannot_stand_for_an_endless_document(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_reader, "MOST_NODES", 10_000)
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    document = parse_yaml("\n".join(levels))
    assert document.value is None
    assert "too large" in document.problems[0].message


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(plain)
def test_what_is_written_with_quotes_and_tags_comes_back_equal(value: Any) -> None:
    # Quoted and tagged (!!int "3") a text means the same in YAML 1.1, which PyYAML writes, and in 1.2.
    text = yaml.safe_dump(value, default_style='"', allow_unicode=False)
    document = parse_yaml(text)
    assert document.problems == ()
    assert document.value == value


@given(st.text(max_size=60))
def test_no_text_whatever_makes_it_raise(text: str) -> None:
    parse_yaml(text)


MERGING = """jobs:
  - &base
    name: a
    num_cpus: 2
    env: {A: "1"}
  - <<: *base
    name: b
  - name: c
    <<: [{memory: 1g, num_cpus: 3}, *base]
"""


def test_a_merge_key_brings_in_what_a_mapping_does_not_have_itself() -> None:
    document = parse_yaml(MERGING)
    assert document.problems == ()
    assert document.value["jobs"] == [
        {"name": "a", "num_cpus": 2, "env": {"A": "1"}},
        {"name": "b", "num_cpus": 2, "env": {"A": "1"}},
        {"name": "c", "num_cpus": 3, "env": {"A": "1"}, "memory": "1g"},
    ]


@pytest.mark.parametrize(
    ("path", "line", "column"),
    [
        (("jobs", 1, "name"), 7, 5),
        (("jobs", 1, "num_cpus"), 4, 5),
        (("jobs", 1, "env", "A"), 5, 11),
        (("jobs", 2, "num_cpus"), 9, 23),
        (("jobs", 2, "env"), 5, 5),
    ],
)
def test_what_is_merged_has_its_place_where_it_is_written(path: Path, line: int, column: int) -> None:
    document = parse_yaml(MERGING)
    assert document.mark(path) == document.marks[path] == Mark(line, column)


def test_what_was_merged_can_be_merged_again() -> None:
    text = "a: &a {x: 1}\nb: &b {<<: *a, y: 2}\nc: {<<: *b}\nd: *b\n"
    document = parse_yaml(text)
    assert document.value["c"] == document.value["d"] == {"x": 1, "y": 2}
    assert document.mark(("c", "x")) == document.mark(("d", "x")) == Mark(1, 8)


def test_a_merge_key_in_quotes_is_a_key() -> None:
    assert parse_yaml('a: {"<<": {b: 1}}\n').value == {"a": {"<<": {"b": 1}}}


@pytest.mark.parametrize("value", ["3", "[1]", "~"])
def test_only_mappings_can_be_merged(value: str) -> None:
    problems = parse_yaml(f"a:\n  <<: {value}\n").problems
    assert [(one.mark, "mapping" in one.message) for one in problems] == [(Mark(2, 3), True)]
