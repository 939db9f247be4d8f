"""`joblens history` and `job-history`: jobs, newest first."""

import click
from msgspec import structs

from joblens.cli.context import Session
from joblens.cli.filters import is_narrowed, job_filters, sort_options, with_run_found
from joblens.cli.options import shared_options
from joblens.model.history import HistoryQuery
from joblens.model.job import Record


@click.command("history")
@job_filters
@sort_options
@shared_options
def command(session: Session, query: HistoryQuery) -> None:
    """Jobs, newest first, with what each one used."""
    records = _records(session, query)
    if session.json or not records:
        _answer_without_table(session, query, records)
        return
    from joblens.app.drivers import SystemClock
    from joblens.views.history import render_history

    now_us = SystemClock().now_us()
    session.write_lines(render_history(records, now_us=now_us, width=session.width, paint=session.palette))
    if session.is_terminal and len(records) == query.limit:
        session.write(session.palette.paint(f"{len(records)} shown; more with --limit N, 0 for all\n", "dim"))


@click.command("job-history")
@job_filters
@sort_options
@shared_options
def job_history(session: Session, query: HistoryQuery) -> None:
    """Ended jobs, newest first, one paragraph each."""
    records = _records(session, structs.replace(query, include_unfinished=bool(query.statuses)))
    if session.json or not records:
        _answer_without_table(session, query, records)
        return
    from joblens.views.history import render_job_history

    session.write_lines(render_job_history(records))


def _records(session: Session, query: HistoryQuery) -> list[Record]:
    from joblens.app.queries import history

    store = session.current_store
    return history(store, with_run_found(store, query))


def _answer_without_table(session: Session, query: HistoryQuery, records: list[Record]) -> None:
    if session.json:
        from joblens.analysis.history_form import to_history_record

        session.write_json([to_history_record(record) for record in records])
    elif is_narrowed(query):
        session.write("No jobs match. 'joblens history' without filters shows the newest.\n")
    else:
        session.write("No jobs yet. Run one: joblens run -- CMD\n")
