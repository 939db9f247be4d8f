import random
import re

import pytest

from joblens.plan.commands.names import NameIndex, search_of

PIECES = (
    *("a", "b", "_", "1", ".", r"\d", r"\w", "[ab]", "[^a]", "(a|b)", "(?:ab|a)", "(a+)", "(?i:A)", r"\b"),
    *("^", "$", "(?=a)", "(?<=a)", "a{1,3}", "(ab)?", "(a*)", ".*", "(?:a|_)+?", "|"),
)


@pytest.mark.parametrize("seed", range(4))
def test_patterns_find_what_re_finds(seed: int) -> None:
    draw = random.Random(seed)
    tried = 0
    while tried < 1500:
        inner = "".join(
            draw.choice(PIECES) + draw.choice(["", "", "*", "+", "{0,2}", "?"])
            for _ in range(draw.randint(1, 4))
        )
        pattern = f"({inner}){draw.choice(['*', '+', '{1,20}'])}{draw.choice(['', '$', 'b'])}"
        try:
            expected, search = re.compile(pattern).search, search_of(pattern)
        except re.error:
            continue
        text = "".join(draw.choice("ab_1A") for _ in range(draw.randint(0, 7)))
        assert (expected(text) is not None) == bool(search(text)), (pattern, text)
        tried += 1


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("(a+)+$", "a" * 300 + "!"),
        (r"^(\w+_?)+$", "train_" * 60 + "!"),
        ("(a|a)*b", "a" * 300),
        ("(.*)*x", "y" * 300),
        (r"([a-z]+)*\d", "a" * 300),
        (".*.*.*.*.*.*=x", "a=" * 150),
        ("(a?){1,50}c", "a" * 300),
        ("(?x)(a+) +$", "a" * 300 + "!"),
        ("(?x)(a+)(?#two)\n +$", "a" * 300 + "!"),
    ],
)
def test_a_pattern_with_too_many_ways_to_match_comes_to_an_end(pattern: str, name: str) -> None:
    assert NameIndex([name, "other!"], []).matching(pattern) == ()


def test_what_cannot_be_bounded_is_refused() -> None:
    with pytest.raises(re.error, match="cannot be combined"):
        search_of(r"(a+)+\1+(b+)+$")


def test_plain_patterns_are_left_to_re() -> None:
    search = search_of(r"^job_\d+$")
    assert search == re.compile(r"^job_\d+$").search
