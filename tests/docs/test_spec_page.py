"""docs/spec.md explains values and options; `test_key_pages` checks its keys and examples."""

from joblens.spec.keys.workflow_run import DECIDED_ELSEWHERE
from tests.conftest import REPOSITORY

PAGE = REPOSITORY / "docs" / "spec.md"


def test_the_options_that_defaults_cannot_set_are_named() -> None:
    last = PAGE.read_text().rsplit("<!-- end of keys -->", 1)[1].replace("-", "_")
    assert {word for word in DECIDED_ELSEWHERE if f"`{word}`" in last} == DECIDED_ELSEWHERE.keys()


def test_every_kind_of_value_is_explained() -> None:
    text = PAGE.read_text().split("## How values are written")[1].split("## Dependencies")[0]
    for kind in (
        "text",
        "name",
        "path",
        "bool",
        "int",
        "number",
        "size",
        "duration",
        "pattern",
        "parameters",
        "any",
    ):
        assert f"| {kind} |" in text
