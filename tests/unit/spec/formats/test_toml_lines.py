"""TOML: values by the standard library, places by ours."""

import pytest

from joblens.spec.formats.positions import Mark, Path
from joblens.spec.formats.toml_reader import parse_toml

TEXT = '''\
# top
name = "x" # why
site."odd key".port = 1
list = [
  1, # one
  {a = 1, b.c = "}"},
]
text = """
[not] = "a table"
"""

[table]
"quo\\u0074ed" = 'v'
  [table.inner]
  deep = 2024-05-01 10:00:00

[[jobs]]
name = "a"
[jobs.env]
A = "1"
[[jobs]]
name = "b"
'''


@pytest.mark.parametrize(
    ("path", "mark"),
    [
        (("name",), Mark(2, 1)),
        (("site",), Mark(3, 1)),
        (("site", "odd key"), Mark(3, 6)),
        (("site", "odd key", "port"), Mark(3, 16)),
        (("list",), Mark(4, 1)),
        (("list", 0), Mark(5, 3)),
        (("list", 1, "b", "c"), Mark(6, 13)),
        (("text",), Mark(8, 1)),
        (("table",), Mark(12, 2)),
        (("table", "quoted"), Mark(13, 1)),
        (("table", "inner", "deep"), Mark(15, 3)),
        (("jobs", 0, "name"), Mark(18, 1)),
        (("jobs", 0, "env", "A"), Mark(20, 1)),
        (("jobs", 1), Mark(21, 1)),
        (("jobs", 1, "name"), Mark(22, 1)),
    ],
)
def test_everything_has_its_place(path: Path, mark: Mark) -> None:
    assert parse_toml(TEXT).mark(path) == mark


def test_dates_are_text_as_in_the_other_formats() -> None:
    value = parse_toml(TEXT).value
    assert value["table"]["inner"]["deep"] == "2024-05-01T10:00:00"
    assert parse_toml("a = 2026-11-15\nb = 10:30:00\n").value == {"a": "2026-11-15", "b": "10:30:00"}


@pytest.mark.parametrize(
    ("text", "mark", "words"),
    [
        ("a = 1\nb = \n", Mark(2, 5), "invalid value"),
        ("[t]\na = 1\n[t]\n", Mark(3, 1), "duplicate table 't'"),
        ("a = 1\na.b = 2\n", Mark(2, 1), "duplicate key 'a.b'"),
        ("a = 'x", Mark(1, 7), "not valid TOML"),
        ("a = 1 b = 2", Mark(1, 7), "not valid TOML"),
        ("a = [1,\n", Mark(2, 1), "not valid TOML"),
    ],
)
def test_what_is_wrong_is_reported_with_its_place(text: str, mark: Mark, words: str) -> None:
    (problem,) = parse_toml(text).problems
    assert problem.mark == mark
    assert words in problem.message
