"""Help of commands with many options is grouped, and every option is in a group."""

import click
import pytest

from joblens.cli.main import COMMANDS, cli
from joblens.cli.options.groups import GLOBAL, GroupedCommand

MOST_UNGROUPED = 12


def own_options(command: click.Command) -> list[click.Option]:
    return [
        parameter
        for parameter in command.params
        if isinstance(parameter, click.Option) and not (parameter.name or "").startswith("global_")
    ]


def commands(group: click.Group) -> dict[str, GroupedCommand]:
    found: dict[str, GroupedCommand] = {}
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            found |= {f"{name} {part}": each for part, each in commands(command).items()}
        else:
            assert isinstance(command, GroupedCommand), name
            found[name] = command
    return found


ALL = commands(cli)
LARGE = {name: command for name, command in ALL.items() if len(own_options(command)) > MOST_UNGROUPED}


def test_the_large_commands_are_among_those_examined() -> None:
    assert {"run", "submit", "resume", "rerun", "map", "export"} <= set(LARGE)


@pytest.mark.parametrize("command", LARGE.values(), ids=LARGE)
def test_a_command_with_many_options_groups_them_all(command: GroupedCommand) -> None:
    sections = command.help_sections(click.Context(command))
    assert "Options" not in sections
    assert list(sections)[-1] == GLOBAL
    assert sum(len(records) for records in sections.values()) == len(
        [each for each in command.get_params(click.Context(command)) if isinstance(each, click.Option)]
    )


@pytest.mark.parametrize("command", ALL.values(), ids=ALL)
def test_options_of_every_command_come_last(command: GroupedCommand) -> None:
    sections = command.help_sections(click.Context(command))
    assert "--help" in str(sections[GLOBAL])
    assert "--help" not in str({title: rows for title, rows in sections.items() if title != GLOBAL})


def test_run_names_its_groups_and_all_forms_of_its_usage() -> None:
    command = cli.get_command(click.Context(cli), "run")
    assert command is not None
    text = command.get_help(click.Context(command, info_name="joblens run"))
    usage, _, rest = text.partition("\n\n")
    assert usage.splitlines() == [
        "Usage: joblens run [OPTIONS] -- COMMAND [ARGUMENTS]...",
        "       joblens run [OPTIONS] --shell LINE",
        "       joblens run [OPTIONS] FILE",
    ]
    titles = [line for line in rest.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles == [
        "What to run:",
        "Limits:",
        "Measurement:",
        "Container:",
        "Output:",
        "Workflow files:",
        "Workers and clusters:",
        "Global options:",
    ]


def test_help_lists_every_command_with_a_summary() -> None:
    text = cli.get_help(click.Context(cli, info_name="joblens"))
    for name, entry in COMMANDS.items():
        assert f"  {name} " in text
        assert entry.summary.endswith(".")
