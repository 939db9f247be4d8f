"""The options that describe a job, the same for `run` and `submit`."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from joblens.cli.options.arguments import count_from
from joblens.cli.options.run_arguments import complete_file
from joblens.cli.options.table import JOB_OPTIONS, OptionRow

F = TypeVar("F", bound=Callable[..., Any])


def click_option(row: OptionRow) -> Callable[[F], F]:
    more: dict[str, Any] = {"help": row.help}
    if row.kind == "flag":
        return click.option(*row.flags, row.name, is_flag=True, **more)
    if row.kind == "many":
        more["multiple"] = True
    elif row.kind == "number":
        more["type"] = float
    elif row.kind == "count":
        more["type"] = count_from(row.least)
    elif row.kind == "choice":
        more["type"] = click.Choice(row.choices)
    if row.default is not None:
        more["default"] = row.default
    if row.metavar is not None:
        more["metavar"] = row.metavar
    return click.option(*row.flags, row.name, show_default=row.shows_default, **more)


def click_options(rows: Sequence[OptionRow]) -> Callable[[F], F]:
    """All of them, in the order of the table."""

    def decorate(function: F) -> F:
        for row in reversed(rows):
            function = click_option(row)(function)
        return function

    return decorate


def job_options(function: F) -> F:
    """What describes a job, and the command itself."""
    command_line = click.argument(
        "command_line",
        nargs=-1,
        type=click.UNPROCESSED,
        metavar="[--] [COMMAND [ARGUMENTS]...]",
        shell_complete=complete_file,
    )
    return click_options(JOB_OPTIONS)(command_line(function))
