"""Every command has a page that lists its options exactly as `--help` does.

After a change of options: JOBLENS_UPDATE_DOCS=1 pytest tests/docs, then read the difference."""

import os
import re
from pathlib import Path

import click
import pytest

from joblens.cli.main import COMMANDS, SECTIONS, cli
from joblens.cli.options.groups import GLOBAL, GroupedCommand
from joblens.model import errors
from tests.conftest import REPOSITORY

UPDATE = bool(os.environ.get("JOBLENS_UPDATE_DOCS"))
DOCS = REPOSITORY / "docs"
PAGES = DOCS / "commands"
ALIASES = {
    "job-history": "history",
    "job-stats": "stats",
    "job-details": "show",
    "job": "metrics",
    "create": "workflows",
    "plot-resources": "plot",
    "completions": "completion",
}
BLOCK = re.compile(r"<!-- options -->\n.*?<!-- end of options -->\n", re.DOTALL)


def options_of(command: click.Command, name: str) -> str:
    """Its own options as a table, those of its subcommands below; the global ones are in cli.md."""
    context = click.Context(command, info_name=name)
    if isinstance(command, click.Group):
        return "\n".join(
            f"### {name} {part}\n\n{subcommand.get_short_help_str(200)}\n\n{options_of(subcommand, part)}"
            for part, subcommand in command.commands.items()
        )
    assert isinstance(command, GroupedCommand)
    rows = []
    for title, records in command.help_sections(context).items():
        if title == GLOBAL:
            continue
        if title in command.groups:
            rows.append(f"| **{title}** | |")
        for record in records:
            words, meaning = (text.replace("|", "\\|") for text in record)
            rows.append(f"| `{words}` | {meaning} |")
    return "\n".join(["| option | meaning |", "|---|---|", *rows, ""]) if rows else "No options of its own.\n"


def command_named(name: str) -> click.Command:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return command


def page_of(name: str) -> Path:
    return PAGES / f"{ALIASES.get(name, name)}.md"


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ALIASES])
def test_a_command_has_a_page_with_all_its_options(name: str) -> None:
    page = page_of(name)
    block = f"<!-- options -->\n{options_of(command_named(name), name)}<!-- end of options -->\n"
    if UPDATE:
        page.write_text(BLOCK.sub(lambda _: block, page.read_text()))
    assert block in page.read_text()


@pytest.mark.parametrize("name", ALIASES)
def test_another_name_for_a_command_stands_in_its_page(name: str) -> None:
    assert f"`joblens {name}" in page_of(name).read_text()


def test_no_page_is_left_over() -> None:
    assert {page.stem for page in PAGES.glob("*.md")} == set(COMMANDS) - set(ALIASES)


def test_the_grammar_names_every_command_and_links_its_page() -> None:
    text = (DOCS / "cli.md").read_text()
    for entries in SECTIONS.values():
        for name in entries:
            assert f"`{name}" in text, name
            assert f"(commands/{page_of(name).name})" in text, name


def test_the_grammar_names_every_global_option_and_exit_code() -> None:
    text = (DOCS / "cli.md").read_text()
    for parameter in cli.params:
        assert f"`{parameter.opts[-1]}" in text, parameter.opts
    codes = {
        error.exit_code
        for error in vars(errors).values()
        if isinstance(error, type) and issubclass(error, errors.JoblensError)
    }
    for code in codes | {124, 130}:
        assert f"| {code} |" in text, code


@pytest.mark.parametrize("name", COMMANDS)
def test_defaults_and_bounds_are_sentences(name: str) -> None:
    table = options_of(command_named(name), name)
    assert not re.findall(r"\[default|x[<>]=", table)
    assert all(
        row.endswith((". |", "| |", "|---|", "meaning |"))
        for row in re.findall(r"^\|.*", table, re.MULTILINE)
    )
