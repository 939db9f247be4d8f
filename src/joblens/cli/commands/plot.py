"""`joblens plot`: plots runs, jobs and time-series files."""

from collections.abc import Callable
from typing import Any, TypeVar

import click
from msgspec import structs

from joblens.cli.context import Globals, Session
from joblens.cli.options.common import complete_file_or_run, shared_options
from joblens.cli.options.groups import GroupedCommand
from joblens.cli.terminal import ProgressBar
from joblens.model.errors import InputError
from joblens.model.values.units import counted

F = TypeVar("F", bound=Callable[..., Any])

_FORMATS = ("html", "png", "svg")


def _split_formats(
    ctx: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]
) -> tuple[str, ...]:
    """--format also selects JSON, as for every command."""
    names = [name.strip().lower() for each in texts for name in each.split(",") if name.strip()]
    unknown = [name for name in names if name not in (*_FORMATS, "json", "text")]
    if unknown:
        raise click.BadParameter(f"'{unknown[0]}' is not a format: use {', '.join(_FORMATS)}, json or text.")
    if "json" in names or "text" in names:
        ctx.obj = structs.replace(ctx.find_object(Globals) or Globals(), json="json" in names)
    return tuple(dict.fromkeys(name for name in names if name in _FORMATS)) or ("html",)


def _split_ids(_ctx: click.Context, _parameter: click.Parameter, text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names or not all(name.isdecimal() and len(name) < 19 for name in names):
        raise click.BadParameter(f"'{text:.60}' is not a list of job numbers such as 1,3,5.")
    return tuple(dict.fromkeys(int(name) for name in names))


def _with_own_format(function: F) -> F:
    """This command's `--format` replaces the one of every command."""
    options = function.__click_params__  # type: ignore[attr-defined]
    function.__click_params__ = [  # type: ignore[attr-defined]
        option for option in options if option.name != "global_format"
    ]
    return function


@click.command("plot", cls=GroupedCommand)
@click.argument(
    "idents", metavar="RUN|JOB|DB...", nargs=-1, required=True, shell_complete=complete_file_or_run
)
@click.option(
    "-o", "--output", default="plots", metavar="DIR", show_default=True, help="Directory for the plots."
)
@click.option("--job-ids", metavar="1,3,5", callback=_split_ids, help="Plot only these jobs, by number.")
@click.option("--all-jobs", is_flag=True, help="Plot every job separately, even more than 20.")
@click.option(
    "--prefix",
    default="resource_plot",
    metavar="NAME",
    show_default=True,
    help="Prefix of file names.",
)
@click.option(
    "--format",
    "formats",
    multiple=True,
    callback=_split_formats,
    metavar="html|png|svg",
    help="Output format, or a list: png,svg. Repeatable. Default: html.",
)
@_with_own_format
@shared_options
def command(
    session: Session,
    idents: tuple[str, ...],
    output: str,
    job_ids: tuple[int, ...],
    all_jobs: bool,
    prefix: str,
    formats: tuple[str, ...],
) -> None:
    """Plot resource usage of runs and jobs over time.

    Accepts runs (3, 3.2, a workflow's name), jobs (by ID or name), and time-series files (.db) written by
    joblens or Torc. Write workflow:3 or job:3 if a number is both.
    """
    from joblens.app.reports.plot_sources import sources_named
    from joblens.app.reports.plots import PlotChoice, plot_sources

    choice = PlotChoice(prefix=prefix, formats=formats, job_ids=job_ids, all_jobs=all_jobs)
    if not prefix:
        raise InputError("--prefix is empty", hint="omit it for resource_plot_…")
    with ProgressBar("jobs read") as bar:
        sources = sources_named(idents, lambda: session.current_store, bar.advance, session.note)
    with ProgressBar("plots", poll_every=1) as bar:
        result = plot_sources(sources, output, choice, bar.advance)
    if session.json:
        session.write_json({"files": list(result.files), "jobs": result.jobs, "notes": list(result.notes)})
        return
    session.write_lines(list(result.files))
    session.note(f"{counted(len(result.files), 'plot')} of {counted(result.jobs, result.unit)} in {output}")
    for note in result.notes:
        session.note(note)
