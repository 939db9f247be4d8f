"""How operators are told."""

import sys

from msgspec import structs

from joblens.model.recipes.recipe import OperatorInfo, ParameterInfo
from joblens.views.recipes.operators import render_operator, render_operators
from tests.golden.golden import same_as_golden

LENGTH = OperatorInfo(
    name="text_length_filter",
    kind="filter",
    summary="Keeps texts of so many characters. Spaces count.",
    parameters=(
        ParameterInfo(name="min_len", type="int", meaning="minimum length", default=10),
        ParameterInfo(name="max_len", type="int", meaning="maximum length", default=sys.maxsize),
    ),
    shared_parameters=(ParameterInfo(name="text_key", type="str", meaning="the field", default=None),),
)
OWN = OperatorInfo(
    name="shorten",
    kind="mapper",
    summary="Cuts texts.",
    parameters=(
        ParameterInfo(name="length", type="int", is_required=True),
        ParameterInfo(name="marks", type="list of str", default=["…", "."]),
    ),
    needs="a knife",
    source="/home/me/own.py",
    problem="there is no knife; pip install knife",
)


def test_operators() -> None:
    same_as_golden("operators", render_operators([LENGTH, OWN], width=80))


def test_one_operator() -> None:
    same_as_golden("operator-filter", render_operator(LENGTH, width=80))


def test_an_own_operator() -> None:
    same_as_golden("operator-own", render_operator(OWN, width=80))


def test_one_long_parameter_leaves_room_for_the_meanings_of_the_others() -> None:
    kinds = " or ".join(f"'kind number {number}'" for number in range(6))
    meaning = "what it is good for in all the words that this takes, which are a few"
    long = ParameterInfo(name="kind", type=kinds, meaning=meaning, default="kind number 0")
    info = structs.replace(LENGTH, parameters=(long, *LENGTH.parameters))
    lines = render_operator(info, width=80)
    assert max(map(len, lines)) <= 80
    assert "  max_len  int = .inf  maximum length" in lines
    assert not any(len(line.split()) == 1 and line.startswith(" " * 20) for line in lines)
