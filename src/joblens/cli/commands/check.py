"""`joblens check` and `reports check-resource-utilization`: did jobs stay within their requests?"""

from collections.abc import Callable
from typing import Any

import click

from joblens.cli.context import Session
from joblens.cli.options.common import complete_run, run_number_option, shared_options
from joblens.cli.options.groups import GroupedCommand
from joblens.model.errors import InputError

VIOLATIONS_EXIT_CODE = 3


def _options(min_over: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in (
            click.option(
                min_over,
                "min_over",
                type=click.FloatRange(min=0),
                default=1.0,
                show_default=True,
                metavar="PERCENT",
                help="Ignore excess below this percentage.",
            ),
            click.option(
                "--include-failed", is_flag=True, help="Include failed jobs, not only the limits they hit."
            ),
            run_number_option,
            click.option(
                "--all", "show_all", is_flag=True, help="Also show jobs that stayed within their limits."
            ),
            click.option(
                "--jobs",
                "names",
                metavar="NAME",
                multiple=True,
                help="Use jobs with this name, not a run: single commands or imported jobs; * and ? match.",
            ),
        ):
            function = option(function)
        return click.argument("ident", metavar="RUN", required=False, shell_complete=complete_run)(function)

    return add


@click.command("check", cls=GroupedCommand)
@_options("--min-over")
@shared_options
def command(session: Session, /, **values: Any) -> None:
    """Compare what the jobs of a run used with what they requested.

    RUN is a workflow's number or name (its newest run), 3.2 for run 2 of workflow 3, or a run's UUID.
    Exit code 3: a job used more than it requested, or hit a limit.
    """
    _check(session, **values)


@click.command("check-resource-utilization", cls=GroupedCommand)
@_options("--min-over-utilization")
@shared_options
def check_resource_utilization(session: Session, /, **values: Any) -> None:
    """Compare what the jobs of a run used with what they requested: 'check' with Torc's options."""
    _check(session, **values)


def _check(
    session: Session,
    ident: str | None,
    names: tuple[str, ...],
    show_all: bool,
    run_number: int | None,
    include_failed: bool,
    min_over: float,
) -> None:
    from joblens.analysis.sizing.utilization import check_utilization
    from joblens.app.reports.rightsizing import records_named
    from joblens.app.runs.lookup import find_named_run, records_of_whole_run

    store = session.current_store
    if (ident is None) == (not names):
        raise InputError("give a RUN, or --jobs NAME")
    run = None if ident is None else find_named_run(store, ident, session.note, run_number)
    records = records_named(store, names) if run is None else records_of_whole_run(store, run)
    report = check_utilization(
        sorted(records, key=lambda record: record.number or 0),
        include_failed=include_failed,
        min_over_percent=min_over,
    )
    if session.json:
        from joblens.analysis.sizing.utilization import report_form

        session.write_json(
            report_form(
                report,
                workflow_id=None if run is None else run.workflow_number,
                run_id=None if run is None else run.number,
                show_all=show_all,
            )
        )
    else:
        from joblens.analysis.runs.status import run_label
        from joblens.views.runs.rightsize import render_utilization

        session.write_lines(
            render_utilization(
                report,
                show_all=show_all,
                run=_named(names) if run is None else run_label(run),
                paint=session.palette,
            )
        )
    if report.violations:
        raise SystemExit(VIOLATIONS_EXIT_CODE)


def _named(names: tuple[str, ...]) -> str:
    """Returns names for the next command."""
    import shlex

    return " ".join(f"--jobs {shlex.quote(name)}" for name in names)
