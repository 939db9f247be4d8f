"""How operators are told."""

import sys

from joblens.model.operator_info import OperatorInfo, ParameterInfo
from joblens.views.operators import render_operator, render_operators
from tests.golden.golden import same_as_golden

LENGTH = OperatorInfo(
    name="text_length_filter",
    kind="filter",
    summary="Keeps texts of so many characters. Spaces count.",
    parameters=(
        ParameterInfo(name="min_len", type="int", meaning="at least this long", default=10),
        ParameterInfo(name="max_len", type="int", meaning="at most this long", default=sys.maxsize),
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
