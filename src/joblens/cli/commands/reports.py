"""`joblens reports`: summary of one run, and other names of reports."""

import click

from joblens.cli.commands.other_names import CommandGroup
from joblens.cli.context import Session
from joblens.cli.options.common import complete_run, run_number_option, shared_options


@click.group("reports", cls=CommandGroup)
def command() -> None:
    """Report on a run. 'reports check-resource-utilization ID' is 'check ID'."""


@command.command("summary")
@click.argument("ident", metavar="RUN", required=False, shell_complete=complete_run)
@run_number_option
@shared_options
def summary(session: Session, ident: str | None, run_number: int | None) -> None:
    """Summarize a run: jobs by state, times, total CPU time and memory, the longest and the largest job.

    Default: the newest run of all.
    """
    from joblens.analysis.runs.table import summary_form
    from joblens.app.runs.lookup import find_named_run, newest_run
    from joblens.app.runs.tables import summary_of

    store = session.current_store
    run = newest_run(store) if ident is None else find_named_run(store, ident, session.note, run_number)
    found = summary_of(store, run)
    if session.json:
        session.write_json(summary_form(found))
        return
    from joblens.views.runs.results import render_summary

    session.write_lines(render_summary(found))
