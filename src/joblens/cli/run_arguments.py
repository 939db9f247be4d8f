"""Workflows and runs on the command line, with completion from the store."""

from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from joblens.cli.context import Globals, Session

F = TypeVar("F", bound=Callable[..., Any])

_OFFERED = 30


def complete_run(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of workflows that begin as typed, newest first. Completion never complains."""
    from joblens.model.errors import JoblensError

    session = Session(ctx.find_object(Globals) or Globals())
    try:
        workflows = session.store.workflows()
    except (JoblensError, OSError):
        return []
    finally:
        session.close()
    named = {each.name: each for each in reversed(workflows)}  # the newest of a name
    near = [each for name, each in reversed(named.items()) if name.startswith(incomplete)]
    return [CompletionItem(each.name, help=f"workflow {each.number}") for each in near[:_OFFERED]]


def run_argument(function: F) -> F:
    """RUN: a workflow's number or name (its newest run), 3.2 for run 2 of workflow 3, or a run's UUID."""
    return click.argument("ident", metavar="RUN", shell_complete=complete_run)(function)


def run_number_option(function: F) -> F:
    return click.option(
        "--run-id",
        "run_number",
        type=click.IntRange(min=1),
        metavar="N",
        help="Run N of the workflow instead of its newest.",
    )(function)
