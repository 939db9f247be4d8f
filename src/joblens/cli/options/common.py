"""Common options and arguments: those of every command, of jobs, and ids of jobs and runs with completion."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import click
from click.shell_completion import CompletionItem

from joblens.cli.context import Globals, Session, with_values
from joblens.cli.options.table import GLOBAL_OPTIONS, JOB_OPTIONS, MOST_COUNT, OptionRow

F = TypeVar("F", bound=Callable[..., Any])

_OFFERED = 30
_LEAST_OF_ID = 3  # digits from which on it may be an id
# Commands that work on a server in place of a store, by their words after `joblens`.
_ON_SERVER = frozenset(
    {
        *("submit", "cancel", "rerun", "resume", "delete", "workflows delete", "workflows cancel"),
        *("list", "top", "status", "workflow-status", "logs", "metrics", "job metrics", "watch", "wait"),
        *(
            "history",
            "job-history",
            "show",
            "job-details",
            "stats",
            "job-stats",
            "results",
            "reports summary",
        ),
        *("reports results", "reports check-resource-utilization", "check", "rightsize", "seff", "diff"),
        *("workflows list", "workflows show", "workflows get", "workflows status"),
        *("workflows check-resources", "jobs list", "jobs get", "jobs logs"),
        *("user-data get", "user-data list", "datasets get", "datasets list", "datasets show"),
        *(
            "plot",
            "plot-resources",
            "report",
            "snapshot",
            "export",
            "sql",
            "graph",
            "workflows execution-plan",
        ),
        *("plan", "mcp", "exporter", "health"),
    }
)
_WITHOUT_STORE = frozenset(
    {
        *("validate", "expand", "schema", "list-tools", "operators", "config show", "config path"),
        *("completion", "completions", "help"),
    }
)


class _Count(click.IntRange):
    """A whole number that a store and a kernel can handle."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if number > MOST_COUNT:
            self.fail(f"{str(number)[:20]}… is too large.", param, ctx)
        return number


def count_from(least: int) -> click.IntRange:
    return _Count(min=least)


def complete_job(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completes the newest jobs by number, as lists show them; ids if the beginning of one was typed. An
    error offers nothing."""
    from joblens.model.errors import JoblensError
    from joblens.model.history import HistoryQuery
    from joblens.model.values.ids import short
    from joblens.views.jobs.labels import display_name

    session = Session(ctx.find_object(Globals) or Globals())
    try:
        records = list(session.store.records(HistoryQuery(limit=500)))
    except (JoblensError, OSError):
        return []
    finally:
        session.close()
    idents = [(str(record.number), record) for record in records]
    if len(incomplete) >= _LEAST_OF_ID or (incomplete and not incomplete.isdigit()):
        idents += [(short(record.job.uuid), record) for record in records]
    near = [(ident, record) for ident, record in idents if ident.startswith(incomplete)]
    return [
        CompletionItem(ident, help=f"{record.status.value} {display_name(record.job)}"[:60])
        for ident, record in near[:_OFFERED]
    ]


def job_argument(function: F) -> F:
    return click.argument("ident", metavar="ID", shell_complete=complete_job)(function)


def complete_run(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completes names of workflows, newest first; after `3.` its runs. An error offers nothing."""
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
    named = {each.name: each for each in reversed(workflows)}  # the newest of each name
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
    """Leaves file names to the shell."""
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
        help="Use run N of the workflow. Default: the newest.",
    )(function)


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
    """Returns all of them in the order of the table."""

    def decorate(function: F) -> F:
        for row in reversed(rows):
            function = click_option(row)(function)
        return function

    return decorate


def job_options(function: F) -> F:
    """Adds options that describe a job, and the command itself."""
    command_line = click.argument(
        "command_line",
        nargs=-1,
        type=click.UNPROCESSED,
        metavar="[--] [COMMAND [ARGUMENTS]...]",
        shell_complete=complete_file,
    )
    return click_options(JOB_OPTIONS)(command_line(function))


P = ParamSpec("P")
R = TypeVar("R")

_NAMES = ("global_store", "global_server", "global_config", "global_json", "global_format", "global_no_color")


def global_options(function: F) -> F:
    """Adds the options themselves, last in the help."""
    return click_options(GLOBAL_OPTIONS)(function)


def remember_globals(ctx: click.Context, values: dict[str, Any]) -> None:
    ctx.obj = with_values(ctx.find_object(Globals) or Globals(), values)


def shared_options(function: Callable[Concatenate[Session, P], R]) -> Callable[P, R]:
    """Gives a command the global options and, as its first argument, the session made from them."""

    @functools.wraps(function)
    def with_session(*args: P.args, **kwargs: P.kwargs) -> R:
        ctx = click.get_current_context()
        values = {name: kwargs.pop(name, None) for name in _NAMES}  # a command may have its own instead
        session = Session(with_values(ctx.find_object(Globals) or Globals(), values))
        _check_server(session, ctx)
        try:
            return function(session, *args, **kwargs)
        finally:
            session.close()

    return global_options(with_session)


def _check_server(session: Session, ctx: click.Context) -> None:
    """Raises InputError for a command that does not work on a server, if one was chosen."""
    words: list[str] = []
    at: click.Context | None = ctx
    while at is not None and at.parent is not None:
        words.insert(0, at.info_name or "")
        at = at.parent
    command = " ".join(words)
    if command not in _ON_SERVER and command not in _WITHOUT_STORE:
        session.refuse_server(command.removesuffix(" ab"))
