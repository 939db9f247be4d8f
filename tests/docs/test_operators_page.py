"""docs/operators.md has every operator with its parameters, as the registry knows them.

After a change of an operator: JOBLENS_UPDATE_DOCS=1 pytest tests/docs, then read the difference."""

import os
import re

import pytest

from joblens.data.operators import MODULES
from joblens.data.registry.info import describe
from joblens.model.recipes.recipe import OperatorInfo, ParameterInfo
from joblens.views.recipes.operators import shown_value
from tests.conftest import REPOSITORY

UPDATE = bool(os.environ.get("JOBLENS_UPDATE_DOCS"))
PAGE = REPOSITORY / "docs" / "operators.md"
BLOCK = re.compile(r"<!-- operators -->\n.*?<!-- end of operators -->\n", re.DOTALL)


def describe_parameter(parameter: ParameterInfo) -> str:
    if parameter.is_required:
        return f"`{parameter.name}`"
    default = "" if parameter.default is None else f" {shown_value(parameter.default)}"
    return f"`{parameter.name}{default}`"


def row(info: OperatorInfo) -> str:
    parameters = ", ".join(describe_parameter(parameter) for parameter in info.parameters) or "none"
    return f"| `{info.name}` | {info.summary} | {parameters.replace('|', chr(92) + '|')} |"


def table() -> str:
    rows = [row(describe(name)) for name in sorted(MODULES)]
    return "\n".join(["| operator | effect | parameters and defaults |", "|---|---|---|", *rows, ""])


def test_the_page_has_every_operator_with_its_parameters() -> None:
    block = f"<!-- operators -->\n{table()}<!-- end of operators -->\n"
    if UPDATE:
        PAGE.write_text(BLOCK.sub(lambda _: block, PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    assert block in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", MODULES)
def test_every_operator_says_what_it_does_and_what_each_parameter_means(name: str) -> None:
    info = describe(name)
    assert info.summary
    assert [parameter.name for parameter in info.parameters if not parameter.meaning] == []
    assert [parameter.name for parameter in info.shared_parameters if not parameter.meaning] == []


@pytest.mark.parametrize("page", ["README.md", "docs/operators.md", "docs/migrating.md"])
def test_pages_say_how_many_operators_there_are(page: str) -> None:
    counts = re.findall(
        r"The (\d+) \[operators\]|There are (\d+), all|\[(\d+) operators\]", (REPOSITORY / page).read_text()
    )
    assert [int("".join(number)) for number in counts] == [len(MODULES)]
