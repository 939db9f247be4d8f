"""What is written as YAML is read back as it was."""

import math
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from joblens.spec.formats.yaml_reader import parse_yaml
from joblens.views.text.yaml_text import yaml_lines

TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.text("ab :#-'\"{}[],&*!|>%@`\n\t\\0.~", max_size=8),
    st.sampled_from(
        ["true", "null", "~", "1e5", "0x1F", "1:30", "- a", "a: b", "yes", ".5", "...", "---", "=", "<<"]
    ),
)
SCALARS = st.one_of(
    TEXTS, st.integers(-(10**15), 10**15), st.floats(allow_nan=False), st.booleans(), st.none()
)
VALUES: Any = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=10,
)


@example({"": "\x1b\n0"})
@given(st.dictionaries(TEXTS, VALUES, min_size=1, max_size=4))
def test_yaml_is_read_back_as_it_was(document: dict[str, Any]) -> None:
    text = "\n".join(yaml_lines(document)) + "\n"
    read = parse_yaml(text)
    assert read.problems == (), text
    assert read.value == document, text


def test_a_script_stays_readable() -> None:
    assert list(yaml_lines({"command": "one\n  two\n", "x": [1, "a b"]})) == [
        "command: |",
        "  one",
        "    two",
        "x: [1, a b]",
    ]


def test_numbers_that_are_none_keep_their_words() -> None:
    assert list(yaml_lines({"a": math.inf, "b": -math.inf})) == ["a: .inf", "b: -.inf"]
