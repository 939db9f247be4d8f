"""docs/tools.md has every built-in tool and placeholder; `test_key_pages` checks its keys and examples."""

from joblens.app.queue.tools import load_tools
from joblens.spec.tools.file import PLACEHOLDERS
from tests.conftest import REPOSITORY

PAGE = REPOSITORY / "docs" / "tools.md"


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
