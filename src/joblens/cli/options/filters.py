"""Options that select jobs: the same for history, stats and export."""

import difflib
import functools
from collections.abc import Callable
from typing import Any

import click
from msgspec import structs

from joblens.cli.options.common import complete_run, count_from
from joblens.model.errors import InputError
from joblens.model.history import BENCH_TAG, OVER_LIMIT, HistoryQuery, SortKey
from joblens.model.jobs.job import Code, Status
from joblens.ports.store import Store

_NAMES = (
    *("tools", "statuses", "tags", "names", "since", "until", "user", "run"),
    *("contains", "hosts", "findings", "over_limit"),
)


def job_filters(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --tool, --status, … and passes them as one `query`."""

    @functools.wraps(function)
    def with_query(*args: Any, **kwargs: Any) -> Any:
        values = {name: kwargs.pop(name) for name in _NAMES}
        return function(*args, query=_query(values), **kwargs)

    for option in (
        click.option(
            "--over-limit",
            is_flag=True,
            help="Only jobs that reached a limit on time, memory, CPU or processes.",
        ),
        click.option(
            "--finding",
            "findings",
            multiple=True,
            metavar="CODE",
            help="Only jobs with this finding. Repeatable.",
        ),
        click.option(
            "--host",
            "hosts",
            multiple=True,
            metavar="HOST",
            help="Only jobs that ran on this host. Repeatable.",
        ),
        click.option("--contains", metavar="TEXT", help="Only jobs with TEXT in their name."),
        click.option(
            "--run",
            metavar="RUN",
            shell_complete=complete_run,
            help="Only jobs of this run: 3, 3.2, name or UUID.",
        ),
        click.option("--user", metavar="USER", help="Only jobs of this user."),
        click.option("--until", metavar="WHEN", help="Only jobs started before WHEN."),
        click.option(
            "--since",
            metavar="WHEN",
            help="Only jobs started at or after WHEN: a time, or an age such as 2h or 7d.",
        ),
        click.option(
            "--name",
            "names",
            multiple=True,
            metavar="NAME",
            help="Only jobs with this name; * and ? match. Repeatable.",
        ),
        click.option(
            "--tag",
            "tags",
            multiple=True,
            metavar="TAG",
            help="Only jobs with this tag: a word or key=value. Repeatable.",
        ),
        click.option(
            "-s",
            "--status",
            "statuses",
            multiple=True,
            type=click.Choice([status.value for status in Status], case_sensitive=False),
            help="Only jobs with this status. Repeatable.",
        ),
        click.option(
            "-t", "--tool", "tools", multiple=True, metavar="TOOL", help="Only jobs of this tool. Repeatable."
        ),
    ):
        with_query = option(with_query)
    return with_query


def _query(values: dict[str, Any]) -> HistoryQuery:
    from joblens.app.jobs.requests import instant_of
    from joblens.app.wiring.drivers import SystemClock

    now_us = SystemClock().now_us()
    return HistoryQuery(
        tools=values["tools"],
        statuses=tuple(Status(status) for status in values["statuses"]),
        tags=values["tags"],
        names=values["names"],
        since_us=instant_of("--since", values["since"], now_us),
        until_us=instant_of("--until", values["until"], now_us),
        user=values["user"],
        run_uuid=values["run"],
        name_contains=values["contains"] or "",
        hosts=values["hosts"],
        findings=_codes(values["findings"], over_limit=values["over_limit"]),
    )


def _codes(findings: tuple[str, ...], *, over_limit: bool) -> tuple[str, ...]:
    known = [code for name, code in vars(Code).items() if name.isupper()]
    for code in findings:
        if code not in known:
            close = difflib.get_close_matches(code, known, 1)
            guess = f"did you mean {close[0]}? " if close else ""
            raise InputError(f"--finding: unknown code '{code}'", hint=f"{guess}docs/findings.md lists them")
    if over_limit and findings:
        raise InputError(
            "--over-limit and --finding cannot be combined",
            hint=f"--over-limit means any of: {', '.join(OVER_LIMIT)}",
        )
    return OVER_LIMIT if over_limit else findings


def with_run_found(store: Store, query: HistoryQuery) -> HistoryQuery:
    """Replaces the argument of --run by the run's UUID. Raises UnknownRun or AmbiguousRun."""
    if query.run_uuid is None:
        return query
    return structs.replace(query, run_uuid=store.find_run(query.run_uuid).uuid)


def bench_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --bench. A query for the tag of benchmarks includes them too."""

    @functools.wraps(function)
    def with_choice(*args: Any, query: HistoryQuery, bench: bool, **kwargs: Any) -> Any:
        without = "" if bench or BENCH_TAG in query.tags else BENCH_TAG
        return function(*args, query=structs.replace(query, without_tag=without), **kwargs)

    return click.option("--bench", is_flag=True, help="Include jobs of 'joblens bench'.")(with_choice)


def hidden_benchmarks(store: Store, query: HistoryQuery) -> str:
    """Returns a sentence about benchmarks that match a query without other results; "" if there are none."""
    if not query.without_tag:
        return ""
    count = store.count(structs.replace(query, without_tag="", limit=None))
    runs = (
        "1 benchmark run; --bench shows it" if count == 1 else f"{count:,} benchmark runs; --bench shows them"
    )
    return f"No jobs except {runs}." if count else ""


def sort_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --limit, --sort and --reverse, and puts them into the query."""

    @functools.wraps(function)
    def with_order(
        *args: Any, query: HistoryQuery, limit: int | None, sort: str, reverse: bool, **kwargs: Any
    ) -> Any:
        key = SortKey(sort)
        # Names sort from A to Z; for everything else the newest or the largest come first.
        ascending = (key is SortKey.NAME) != reverse
        ordered = structs.replace(query, limit=limit, sort=key, ascending=ascending)
        return function(*args, query=ordered, **kwargs)

    for option in (
        click.option("--reverse", is_flag=True, help="Reverse the order."),
        click.option(
            "--sort",
            type=click.Choice([key.value for key in SortKey]),
            default=SortKey.STARTED.value,
            show_default=True,
            help="Sort key; newest or largest first.",
        ),
        click.option(
            "-l",
            "--limit",
            type=count_from(0),
            metavar="N",
            help="Maximum number of jobs; 0 for all. Default: 10; with --json, all.",
        ),
    ):
        with_order = option(with_order)
    return with_order


def is_narrowed(query: HistoryQuery) -> bool:
    return any(
        (
            query.tools,
            query.statuses,
            query.tags,
            query.names,
            query.since_us,
            query.until_us,
            query.user,
            query.run_uuid,
            query.name_contains,
            query.hosts,
            query.findings,
        )
    )
