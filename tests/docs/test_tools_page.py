"""docs/tools.md has every key of a tool's file, every built-in tool, and examples that work as they stand.

After a change of keys: JOBLENS_UPDATE_DOCS=1 pytest tests/docs, then read the difference."""

import pytest

from joblens.app.queue.tools import load_tools
from joblens.spec.keys.table import Section
from joblens.spec.keys.tool import TOOL_SECTIONS
from joblens.spec.tools.file import PLACEHOLDERS, read_tool
from tests.conftest import REPOSITORY
from tests.docs.key_pages import check_tables, yaml_examples
from tests.docs.test_spec_page import bounds_of, default_of, kind_of

PAGE = REPOSITORY / "docs" / "tools.md"


def table_of(section: Section) -> str:
    title = section.place[0].upper() + section.place[1:]
    rows = [
        f"| `{key.name}` | {kind_of(key)} | {default_of(key)} | {key.meaning}{bounds_of(key)} |"
        for key in section.keys.values()
    ]
    return "\n".join([f"#### {title}\n", "| key | kind | default | meaning |", "|---|---|---|---|", *rows])


def test_every_key_stands_in_the_page() -> None:
    check_tables(PAGE, map(table_of, TOOL_SECTIONS.values()))


def test_every_built_in_tool_stands_there_with_its_scripts_and_their_parameters() -> None:
    rows = {
        line.split("|")[1].strip(): line for line in PAGE.read_text().splitlines() if line.startswith("| `")
    }
    for tool in load_tools("/").values():
        row = rows[f"`{tool.name}`"]
        for name, script in tool.scripts.items():
            assert f"`{name}`: {', '.join(f'`{each}`' for each in script.parameters)} |" in row


def test_every_placeholder_is_explained() -> None:
    text = PAGE.read_text()
    assert [word for word in PLACEHOLDERS if f"| `{{{word}}}` |" not in text] == []


@pytest.mark.parametrize("example", yaml_examples(PAGE))
def test_an_example_can_be_used_as_it_stands(example: str) -> None:
    reading = read_tool(example, "/tools/example.yaml")
    assert reading.problems == ()
    assert reading.tool is not None


def test_the_mistakes_shown_are_told_so() -> None:
    reading = read_tool('command: [ "{scrip}"]\nparameters: arguments\n', "solver.yaml")
    told = [f"solver.yaml:{one.mark.line}:{one.mark.column}: {one.message}" for one in reading.problems]
    assert "```\n" + "\n".join(told) + "\n```" in PAGE.read_text()
