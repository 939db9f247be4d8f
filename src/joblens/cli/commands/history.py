"""`joblens history` and `job-history`: jobs, newest first."""

from collections.abc import Iterator

import click
from msgspec import json, structs

from joblens.cli.context import Session
from joblens.cli.options.common import shared_options
from joblens.cli.options.filters import (
    bench_option,
    hidden_benchmarks,
    is_narrowed,
    job_filters,
    sort_options,
    with_run_found,
)
from joblens.cli.options.groups import FILTER_GROUPS, GroupedCommand
from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Record
from joblens.ports.store import Store

_SHOWN = 10  # default for text


@click.command("history", cls=GroupedCommand, groups=FILTER_GROUPS)
@job_filters
@bench_option
@sort_options
@shared_options
def command(session: Session, query: HistoryQuery) -> None:
    """List jobs and what each one used, newest first."""
    store = session.current_store
    query = _limited(session, with_run_found(store, query))
    records = _answered(session, store, query)
    if not records:
        return
    from joblens.app.wiring.drivers import SystemClock
    from joblens.views.jobs.history import render_history

    now_us = SystemClock().now_us()
    session.write_lines(render_history(records, now_us=now_us, width=session.width, paint=session.palette))
    _note_more(session, store, query, len(records))


@click.command("job-history", cls=GroupedCommand, groups=FILTER_GROUPS)
@job_filters
@bench_option
@sort_options
@shared_options
def job_history(session: Session, query: HistoryQuery) -> None:
    """List ended jobs, newest first, one paragraph each."""
    store = session.current_store
    query = _limited(session, with_run_found(store, query))
    query = structs.replace(query, include_unfinished=bool(query.statuses))
    records = _answered(session, store, query)
    if not records:
        return
    from joblens.views.jobs.history import render_job_history

    session.write_lines(render_job_history(records))
    _note_more(session, store, query, len(records))


def _limited(session: Session, query: HistoryQuery) -> HistoryQuery:
    """JSON without a number is unlimited: a program would not notice that something is missing."""
    limit = query.limit if query.limit is not None or session.json else _SHOWN
    return structs.replace(query, limit=limit or None)


def _answered(session: Session, store: Store, query: HistoryQuery) -> list[Record]:
    """Returns the jobs to show as text; empty if the answer was already written."""
    if session.json:
        _write_json(session, store.records(query))
        return []
    records = list(store.records(query))
    if not records:
        usual = "No jobs yet. Run one: joblens run -- CMD"
        if is_narrowed(query):
            usual = "No jobs match. 'joblens history' without filters shows the newest."
        session.write(f"{hidden_benchmarks(store, query) or usual}\n")
    return records


def _write_json(session: Session, records: Iterator[Record]) -> None:
    """Writes one document while reading: there may be millions."""
    from joblens.analysis.formats.history import to_history_record

    if session.is_terminal:
        session.write_json([to_history_record(record) for record in records])
        return
    between = "["
    for record in records:
        session.write(between + json.encode(to_history_record(record)).decode())
        between = ","
    session.write("[]\n" if between == "[" else "]\n")


def _note_more(session: Session, store: Store, query: HistoryQuery, shown: int) -> None:
    if shown != query.limit:
        return
    total = store.count(query)
    if total > shown:
        text = f"{shown} of {total} jobs; use --limit N for more, 0 for all"
        session.write(session.palette.paint(text, "dim") + "\n")
