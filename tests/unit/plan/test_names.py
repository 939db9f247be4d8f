"""Regexes over names give what trying each regex on each name gives, however they are narrowed."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joblens.plan import names as names_module
from joblens.plan.names import NameIndex, literals_of

NAMES = st.lists(st.text(alphabet="ab_1.-", min_size=1, max_size=6), max_size=20)
PIECES = st.sampled_from(
    [
        "a",
        "b",
        "ab",
        "_",
        "1",
        r"\.",
        r"\d",
        ".",
        ".*",
        "a*",
        "b?",
        "1+",
        "[ab]",
        "[^a]",
        "(ab)",
        "(a|b)",
        "a{2}",
        "-",
    ]
)
PATTERNS = st.builds(
    lambda start, pieces, end: start + "".join(pieces) + end,
    st.sampled_from(["", "^"]),
    st.lists(PIECES, max_size=4),
    st.sampled_from(["", "$"]),
)


@given(NAMES, st.lists(PATTERNS, max_size=6))
def test_a_regex_finds_the_names_it_is_found_in(names: list[str], patterns: list[str]) -> None:
    index = NameIndex(names)
    for pattern in patterns:
        found = index.matching(pattern)
        expected = {name for name in names if re.search(pattern, name)}
        assert {names[place] for place in found} == expected
        assert list(found) == sorted(found)


def test_many_regexes_are_narrowed_by_fragments_and_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names_module, "_MANY", 3)
    names = [f"job_{number}_x{number % 7}" for number in range(300)]
    index = NameIndex(names)
    for number in range(100):
        for pattern in (f"_{number}_x", f"job.*_{number}_", f"^job_{number}_.*$", f"_{number}_x[0-9]$", "x"):
            expected = tuple(place for place, name in enumerate(names) if re.search(pattern, name))
            assert index.matching(pattern) == expected, pattern


@pytest.mark.parametrize(
    ("pattern", "runs"),
    [
        ("^abc$", ("abc",)),
        ("ab.c", ("ab", "c")),
        ("ab*c", ("a", "c")),
        (r"a\.b", ("a.b",)),
        ("a|b", ()),
        ("(?i)abc", ()),
        ("x[]y]z", ("x", "z")),
        ("a(bc)d", ("a", "d")),
    ],
)
def test_only_what_every_match_has_counts_as_literal(pattern: str, runs: tuple[str, ...]) -> None:
    assert literals_of(pattern).runs == runs


def test_what_is_no_regex_is_told() -> None:
    with pytest.raises(re.error):
        NameIndex(["a"]).matching("a(")
