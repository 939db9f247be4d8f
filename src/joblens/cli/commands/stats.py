"""`joblens stats` and `job-stats`: totals and percentiles of jobs."""

import click
from msgspec import structs

from joblens.cli.context import Session
from joblens.cli.options.common import shared_options
from joblens.cli.options.filters import (
    bench_option,
    hidden_benchmarks,
    is_narrowed,
    job_filters,
    with_run_found,
)
from joblens.cli.options.groups import FILTER_GROUPS, GroupedCommand
from joblens.model.errors import InputError
from joblens.model.history import HistoryQuery, Statistics
from joblens.ports.store import Store


@click.command("stats", cls=GroupedCommand, groups=FILTER_GROUPS)
@click.option("--profiles", is_flag=True, help="Show mean, spread and extremes of every profile metric.")
@click.option(
    "--compose",
    is_flag=True,
    help="Print Compose resource limits, one service per tool, with headroom above the peak.",
)
@job_filters
@bench_option
@shared_options
def command(session: Session, query: HistoryQuery, profiles: bool, compose: bool) -> None:
    """Show totals and percentiles of ended jobs, overall and by tool."""
    if profiles and compose:
        raise InputError("--profiles and --compose cannot be combined")
    if profiles:
        _show_profiles(session, query)
        return
    if compose:
        _show_compose(session, query)
        return
    found = _statistics(session, query)
    if found is None:
        return
    from joblens.views.jobs.stats import render_stats

    session.write_lines(render_stats(found, width=session.width, paint=session.palette))


@click.command("job-stats", cls=GroupedCommand, groups=FILTER_GROUPS)
@job_filters
@bench_option
@shared_options
def job_stats(session: Session, query: HistoryQuery) -> None:
    """Show totals of ended jobs, overall and by tool, in sentences."""
    found = _statistics(session, query)
    if found is None:
        return
    from joblens.views.jobs.stats import render_job_stats

    session.write_lines(render_job_stats(found))


def _show_profiles(session: Session, query: HistoryQuery) -> None:
    from joblens.app.jobs.queries import profile_statistics

    store = session.current_store
    query = with_run_found(store, query)
    statistics = profile_statistics(store, query)
    if session.json:
        session.write_json(statistics)
    elif not statistics["profiles"] and not statistics["without_profile"]:
        session.note(_none_of(store, query))
    else:
        from joblens.views.jobs.stats import render_profile_statistics

        width = session.width if session.is_terminal else None
        session.write_lines(render_profile_statistics(statistics, width=width, paint=session.palette))


def _show_compose(session: Session, query: HistoryQuery) -> None:
    from msgspec import to_builtins

    from joblens.analysis.sizing.compose import compose_text
    from joblens.app.reports.rightsizing import advise_stored

    store = session.current_store
    query = with_run_found(store, query)
    services = advise_stored(store, query)
    if session.json:
        session.write_json({"services": to_builtins(services)})
    else:
        if not services:
            session.note(_none_of(store, query))
        session.write(compose_text(services))  # always a readable file, whatever was found


def _statistics(session: Session, query: HistoryQuery) -> Statistics | None:
    """Returns the statistics to show as text; None if the answer was already written."""
    store = session.current_store
    query = with_run_found(store, query)
    found = store.statistics(query)
    if session.json:
        from joblens.analysis.numbers.statistics import summary_form

        session.write_json(summary_form(found))
        return None
    if found.overall.jobs:
        return found
    session.write(f"{_none_of(store, query)}\n")
    return None


def _none_of(store: Store, query: HistoryQuery) -> str:
    hidden = hidden_benchmarks(store, structs.replace(query, include_unfinished=False))
    if hidden:
        return hidden
    if is_narrowed(query):
        return "No ended jobs match."
    return "No jobs have ended yet. Run one: joblens run -- CMD"
