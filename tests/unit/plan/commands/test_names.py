"""Regexes over names give what trying each regex on each name gives, however they are narrowed."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joblens.plan.commands import names as names_module
from joblens.plan.commands.names import Literals, NameIndex, branches_of, literals_of

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
        "(?:a|_1|)",
        "(a|b)?",
        "(^a|1$)",
        "(a(b|_)|1)",
        "|",
        "[(|]",
        "(b|[a|])",
        r"(\||a)",
        "(?=a)",
        "(a{2}|b)",
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


@pytest.mark.parametrize(
    ("pattern", "branches"),
    [
        ("(pre|x)_7$", ["pre_7$", "x_7$"]),
        ("^a|b$", ["^a", "b$"]),
        ("(?:a|b)(c|d)", ["ac", "ad", "bc", "bd"]),
        ("(a(b|)|c)", ["ab", "a", "c"]),
        (r"[(|]\|\(", [r"[(|]\|\("]),
        ("(a|b)+c", ["(a|b)+c"]),
        ("(a|b){2}", ["(a|b){2}"]),
        (r"(a|b)\1", [r"(a|b)\1"]),
        ("(?i:a|b)", ["(?i:a|b)"]),
        ("x(a|*b)", ["x(a|*b)"]),
        ("x{(1|2)}", ["x{(1|2)}"]),
        ("(a|b", ["(a|b"]),
        ("a|b)", ["a|b)"]),
        ("(a|b)" * 5, ["(a|b)" * 5]),
    ],
)
def test_alternatives_become_regexes_of_their_own_where_that_is_the_same(
    pattern: str, branches: list[str]
) -> None:
    assert branches_of(pattern) == branches


@pytest.mark.parametrize("pattern", ["(pre|x)_{}$", "^(?:pre|x)_{}$", "^pre_{}$|^x_{}$", "(pre|x)?_{}$"])
def test_regexes_with_groups_do_not_look_at_every_name(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{kind}_{number}" for kind in ("pre", "x") for number in range(1000)]
    index = NameIndex(names)
    looked_at = 0
    candidates_of = NameIndex._candidates

    def counted(self: NameIndex, literals: Literals) -> list[int] | None:
        nonlocal looked_at
        found = candidates_of(self, literals)
        looked_at += len(names) if found is None else len(found)
        return found

    monkeypatch.setattr(NameIndex, "_candidates", counted)
    for number in range(1000):
        places = {number, 1000 + number}
        assert places <= set(index.matching(pattern.replace("{}", str(number))))
    assert looked_at < 20 * len(names)


@pytest.mark.parametrize("pattern", ["(a|*b)", "x(a|*b)", "(a|b", "a|b)", "(a|b**)", "a|["])
def test_alternatives_that_are_no_regex_are_reported_as_they_are_written(pattern: str) -> None:
    with pytest.raises(re.error) as caught:
        NameIndex(["a"]).matching(pattern)
    assert caught.value.pattern == pattern


def test_what_is_no_regex_is_reported() -> None:
    with pytest.raises(re.error):
        NameIndex(["a"]).matching("a(")
