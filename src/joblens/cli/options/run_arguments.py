"""Workflows and runs on the command line, with completion from the store."""

from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from joblens.cli.context import Globals, Session
from joblens.cli.options.arguments import complete_job, count_from

F = TypeVar("F", bound=Callable[..., Any])

_OFFERED = 30


def complete_run(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of workflows that begin as typed, newest first; behind `3.` the runs of it. Completion never
    complains."""
    from joblens.model.errors import JoblensError

    session = Session(ctx.find_object(Globals) or Globals())
    try:
        workflows = [each for each in session.store.workflows() if not each.is_of_commands]
        whose = [each for each in workflows if incomplete.startswith((f"{each.number}.", f"{each.name}."))]
        runs = session.store.runs(whose[0].uuid) if whose else []
    except (JoblensError, OSError):
        return []
    finally:
        session.close()
    named = {each.name: each for each in reversed(workflows)}  # the newest of a name
    near = [each for name, each in reversed(named.items()) if name.startswith(incomplete)]
    if near or not whose:
        return [CompletionItem(each.name, help=f"workflow {each.number}") for each in near[:_OFFERED]]
    before = f"{whose[0].number}." if incomplete.startswith(f"{whose[0].number}.") else f"{whose[0].name}."
    idents = [(f"{before}{run.number}", run.status.value) for run in reversed(runs)]
    return [CompletionItem(ident, help=status) for ident, status in idents if ident.startswith(incomplete)]


def complete_job_or_run(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return complete_run(ctx, parameter, incomplete) + complete_job(ctx, parameter, incomplete)


def complete_file(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The shell knows best what files there are."""
    return [CompletionItem(incomplete, type="file")]


def complete_file_or_run(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return complete_run(ctx, parameter, incomplete) + complete_file(ctx, parameter, incomplete)


def run_argument(function: F) -> F:
    """RUN: a workflow's number or name (its newest run), 3.2 for run 2 of workflow 3, or a run's UUID."""
    return click.argument("ident", metavar="RUN", shell_complete=complete_run)(function)


def jobs_or_runs_argument(function: F) -> F:
    return click.argument(
        "idents", metavar="ID...", nargs=-1, required=True, shell_complete=complete_job_or_run
    )(function)


def run_number_option(function: F) -> F:
    return click.option(
        "--run-id",
        "run_number",
        type=count_from(1),
        metavar="N",
        help="Run N of the workflow instead of its newest.",
    )(function)
