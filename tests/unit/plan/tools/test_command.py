"""Parameters in the form in which scripts get them, and commands with their places filled."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joblens.model.errors import ToolError
from joblens.model.tool import ParameterWay, Tool, ToolParameter
from joblens.plan.tools.command import (
    check_parameters,
    fill_command,
    fill_variables,
    pass_parameters,
    whole_cpus,
)

ENVIRONMENT = Tool(name="t", parameters=ParameterWay.ENVIRONMENT)
ARGUMENTS = Tool(name="t", parameters=ParameterWay.ARGUMENTS)
LAMMPS = Tool(name="t", parameters=ParameterWay.ARGUMENTS, parameter_form=("-var", "{name}", "{value}"))
JOINED = Tool(name="t", parameters=ParameterWay.ARGUMENTS, parameter_form=("--{name}={value}",))


def test_variables_have_the_prefix_and_capitals() -> None:
    passed = pass_parameters(ENVIRONMENT, {"mesh_size": 64, "a-b": "x y", "ok": True, "l": [1, 2.5]})
    assert passed.env == {"SIM_MESH_SIZE": "64", "SIM_A_B": "x y", "SIM_OK": "true", "SIM_L": "[1, 2.5]"}
    assert passed.words == ()


def test_two_parameters_cannot_be_one_variable() -> None:
    with pytest.raises(ToolError, match="'a_b' and 'a-b' are both SIM_A_B"):
        pass_parameters(ENVIRONMENT, {"a_b": 1, "a-b": 2})


def test_a_list_is_several_words_where_the_value_is_one_by_itself() -> None:
    passed = pass_parameters(LAMMPS, {"t": [1, 2], "s": 0.5})
    assert passed.words == ("-var", "t", "1", "2", "-var", "s", "0.5")


def test_a_list_repeats_the_form_where_the_value_is_part_of_a_word() -> None:
    assert pass_parameters(JOINED, {"t": [1, 2]}).words == ("--t=1", "--t=2")


def test_a_value_that_would_be_taken_for_an_option_is_refused() -> None:
    with pytest.raises(ToolError, match="'-log' would be taken for an option"):
        pass_parameters(LAMMPS, {"t": "-log"})
    assert pass_parameters(LAMMPS, {"t": -1e-05}).words == ("-var", "t", "-1e-05")
    assert pass_parameters(JOINED, {"t": "-log"}).words == ("--t=-log",)


def test_a_value_with_a_placeholder_in_it_stays_as_it_is() -> None:
    assert pass_parameters(JOINED, {"t": "{name} $HOME `id`"}).words == ("--t={name} $HOME `id`",)


def test_parameters_in_a_file_are_the_same_values() -> None:
    params: dict[str, Any] = {"a": 1, "b": [1.5, "x"], "c": False, "d": "ü"}
    passed = pass_parameters(Tool(name="t", parameters=ParameterWay.JSON_FILE), params)
    assert passed.words == ("params.json",)
    assert json.loads(passed.files["params.json"]) == params


def test_a_tool_without_parameters_refuses_them() -> None:
    tool = Tool(name="t", parameters=ParameterWay.NONE)
    assert pass_parameters(tool, {}).words == ()
    with pytest.raises(ToolError, match="takes no parameters"):
        pass_parameters(tool, {"a": 1})


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_reads_back_as_itself(value: float) -> None:
    assert float(pass_parameters(ENVIRONMENT, {"x": value}).env["SIM_X"]) == value


@given(st.text(alphabet=st.characters(blacklist_characters="\0", blacklist_categories=["Cs"])))
def test_text_arrives_as_it_was_written(text: str) -> None:
    assert pass_parameters(JOINED, {"x": text}).words == (f"--x={text}",)
    assert pass_parameters(ENVIRONMENT, {"x": text}).env == {"SIM_X": text}


def test_a_command_is_filled_word_by_word() -> None:
    words = fill_command(
        ("{program}", "-n{cpus}", "{interpreter...}", "{script}", "{params...}", "{x}"),
        {"program": "/bin/p q", "cpus": "4", "script": "{params...}"},
        {"interpreter...": (), "params...": ("{script}", "b c")},
    )
    assert words == ("/bin/p q", "-n4", "{params...}", "{script}", "b c", "{x}")


def test_variables_are_filled_with_what_they_are_or_what_is_said_instead() -> None:
    assert fill_variables("${A}/x:${B:-/usr}", {"A": "/a"}, "t") == "/a/x:/usr"
    assert fill_variables("${B:-/usr}", {"B": "/b"}, "t") == "/b"
    with pytest.raises(ToolError, match="needs the variable C"):
        fill_variables("${C}", {}, "t")


def test_cpus_are_whole() -> None:
    assert [whole_cpus(each) for each in (None, 0.5, 1.0, 2.1)] == [1, 1, 1, 3]


KNOWN = {
    "size": ToolParameter(default=32, least=1, most=100),
    "rate": ToolParameter(default=1.0),
    "name": ToolParameter(default="a", choices=("a", "b")),
    "fast": ToolParameter(default=False),
    "times": ToolParameter(default=[1.0]),
}


def test_values_of_the_right_kind_pass() -> None:
    given_ = {"size": 64.0, "rate": 2, "name": "b", "fast": True, "times": [1, 2.5]}
    checked = check_parameters("s.py", given_, KNOWN)
    assert checked == {"size": 64, "rate": 2, "name": "b", "fast": True, "times": [1, 2.5]}
    assert type(checked["size"]) is int
    assert check_parameters("s.py", {"times": 3}, KNOWN) == {"times": [3]}


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"siz": 1}, "s.py has no parameter 'siz'; did you mean 'size'?"),
        ({"size": "64"}, "parameter size of s.py: must be a whole number, not '64'"),
        ({"size": 1.5}, "parameter size of s.py: must be a whole number, not 1.5"),
        ({"size": True}, "parameter size of s.py: must be a whole number, not True"),
        ({"size": [1]}, "parameter size of s.py: must be a whole number, not a list"),
        ({"size": 0}, "parameter size of s.py: must be at least 1, not 0"),
        ({"size": 101}, "parameter size of s.py: must be at most 100, not 101"),
        ({"rate": "x"}, "parameter rate of s.py: must be a number, not 'x'"),
        ({"name": "c"}, "parameter name of s.py: must be one of a, b, not c"),
        ({"fast": 1}, "parameter fast of s.py: must be true or false, not 1"),
        ({"times": ["x"]}, "parameter times of s.py: must be a number, not 'x'"),
        ({"rate": None}, "parameter rate: null cannot be passed to a script"),
        ({"rate": {"a": 1}}, "parameter rate: dict cannot be passed to a script"),
        ({"rate": float("nan")}, "parameter rate: nan is not a finite number"),
        ({"name": "a\0"}, "parameter name: it contains a NUL character"),
        ({"a b": 1}, "parameter 'a b': a name has letters, digits, '_', '-' and '.', a letter first"),
    ],
)
def test_a_value_that_cannot_be_used_is_reported(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ToolError) as raised:
        check_parameters("s.py", params, KNOWN)
    assert str(raised.value) == message


def test_a_script_of_which_nothing_is_known_takes_anything() -> None:
    assert check_parameters("s.py", {"any": ["x", 1]}, None) == {"any": ["x", 1]}


def test_every_parameter_that_cannot_be_used_is_reported() -> None:
    with pytest.raises(ToolError) as raised:
        check_parameters("s.py", {"x y": 1, "nothing": None}, KNOWN)
    assert len(str(raised.value).splitlines()) == 2
