"""`joblens stats` and `job-stats`: many jobs in a few numbers."""

import click

from joblens.cli.context import Session
from joblens.cli.filters import is_narrowed, job_filters, with_run_found
from joblens.cli.options import shared_options
from joblens.model.history import HistoryQuery, Statistics


@click.command("stats")
@job_filters
@shared_options
def command(session: Session, query: HistoryQuery) -> None:
    """Totals and percentiles of ended jobs, overall and by tool."""
    found = _statistics(session, query)
    if found is None:
        return
    from joblens.views.stats import render_stats

    session.write_lines(render_stats(found, width=session.width, paint=session.palette))


@click.command("job-stats")
@job_filters
@shared_options
def job_stats(session: Session, query: HistoryQuery) -> None:
    """Totals of ended jobs, overall and by tool, in words."""
    found = _statistics(session, query)
    if found is None:
        return
    from joblens.views.stats import render_job_stats

    session.write_lines(render_job_stats(found))


def _statistics(session: Session, query: HistoryQuery) -> Statistics | None:
    """What there is to show as text; None when the answer has been given."""
    from joblens.app.queries import statistics

    store = session.current_store
    found = statistics(store, with_run_found(store, query))
    if session.json:
        from joblens.analysis.statistics import summary_form

        session.write_json(summary_form(found))
        return None
    if found.overall.jobs:
        return found
    if is_narrowed(query):
        session.write("No ended jobs match.\n")
    else:
        session.write("No jobs have ended yet. Run one: joblens run -- CMD\n")
    return None
