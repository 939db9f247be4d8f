"""`{name}` in texts."""

import pytest

from joblens.plan.commands.parameters import Slots, Value, Variables, filler, formatted, pattern_of


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [
        (7, None, "7"),
        (7, "03d", "007"),
        (7, ".2f", "7.00"),
        (0.5, ".4f", "0.5000"),
        (0.5, "03d", "0.5"),
        ("x", "03d", "x"),
        ("007", "d", "7"),
        (7, "whatever", "7"),
        (7, ">20", "7"),
        (7, "09999999999d", "7"),
    ],
)
def test_numbers_take_formats_and_everything_else_is_plain(value: Value, form: str | None, text: str) -> None:
    assert formatted(value, form) == text


def put(text: str, **values: Value) -> str:
    slots = Slots(list(values))
    template = slots.template(text)
    return text if template is None else template.format(*slots.texts(list(values.values())))


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("a_{i}", "a_3"),
        ("{i}{i:02d}", "303"),
        ("${i} {i}", "${i} 3"),
        ("${files.input.f_{i}}", "${files.input.f_3}"),
        ("awk '{print $1}' {i}", "awk '{print $1}' 3"),
        ("{other} {i} {}", "{other} 3 {}"),
        ("{{i}}", "{3}"),
        ("no braces", "no braces"),
    ],
)
def test_only_known_names_are_replaced_and_shell_variables_stay(text: str, result: str) -> None:
    assert put(text, i=3) == result


def test_values_are_put_in_however_deep_and_what_has_none_is_shared() -> None:
    slots = Slots(["i"])
    fill = filler({"a": ["x_{i}", 1], "{i}": None, "b": {"c": "{i}"}}, slots)
    assert fill is not None
    assert fill(slots.texts([5])) == {"a": ["x_5", 1], "5": None, "b": {"c": "5"}}
    assert filler(("plain", "texts"), slots) is None


def test_variables_are_put_in_once_and_unknown_names_are_reported() -> None:
    unknown: list[str] = []
    text = Variables({"root": "/data/{i}"}).text("{root}/{i}/{rot} ${HOME} {1}", ["i"], unknown.append)
    assert text == "/data/{i}/{i}/{rot} ${HOME} {1}"
    assert unknown == ["rot"]


def test_without_variables_nothing_is_unknown() -> None:
    unknown: list[str] = []
    assert Variables({}).text("{x}", [], unknown.append) == "{x}"
    assert unknown == []


def test_a_placeholder_may_become_anything() -> None:
    assert pattern_of("a_{i:03d}.b").fullmatch("a_017.b")
    assert not pattern_of("a_{i}.b").fullmatch("a_017xb")
