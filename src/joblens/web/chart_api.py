"""Endpoints of the job and compare pages: charts, earlier runs, advice, log search and comparison."""

from typing import Annotated

from msgspec import Meta, Struct

from joblens.app.server import charts, comparison
from joblens.app.server.jobs import Word
from joblens.app.server.log_search import LogMatches, SearchQuery, search_log
from joblens.app.server.log_window import LogWindow, WindowPart, read_window
from joblens.web.endpoints import Call, Endpoint, of_path
from joblens.web.job_api import SeriesQuery, Time


class EarlierQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=20)] = 5
    points: Annotated[int, Meta(ge=10, le=2000)] = 200


class WindowQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    at: Time | None = None  # position; None: the end, or forward the start
    part: WindowPart = WindowPart.BACKWARD
    limit: Annotated[int, Meta(ge=1, le=2000)] = 400  # lines


class CompareQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    job: tuple[Word, ...] = ()
    run: tuple[Word, ...] = ()
    points: Annotated[int, Meta(ge=10, le=2000)] = 300


def _charts(call: Call) -> charts.JobCharts:
    query: SeriesQuery = call.query
    return charts.get_charts(
        call.store, call.principal, call.path["job"], query.begin_us, query.end_us, query.points
    )


def _earlier(call: Call) -> charts.EarlierRuns:
    query: EarlierQuery = call.query
    return charts.get_earlier(call.store, call.principal, call.path["job"], query.limit, query.points)


def _search(call: Call) -> LogMatches:
    query: SearchQuery = call.query
    return search_log(call.store, call.principal, call.path["job"], call.path["stream"], query)


def _window(call: Call) -> LogWindow:
    query: WindowQuery = call.query
    return read_window(
        call.store,
        call.principal,
        call.path["job"],
        call.path["stream"],
        at=query.at,
        part=query.part,
        limit=query.limit,
    )


def _compare(call: Call) -> comparison.Comparison:
    query: CompareQuery = call.query
    return comparison.compare(call.store, call.principal, query.job, query.run, query.points)


ENDPOINTS = (
    Endpoint(
        "GET /jobs/{job}/charts",
        "getCharts",
        "All curves of a job on one time axis, with limits, markers and why a metric is unknown.",
        _charts,
        charts.JobCharts,
        query=SeriesQuery,
    ),
    Endpoint(
        "GET /jobs/{job}/earlier",
        "getEarlier",
        "Curves of earlier jobs of the same name, newest first.",
        _earlier,
        charts.EarlierRuns,
        query=EarlierQuery,
    ),
    Endpoint(
        "GET /jobs/{job}/advice",
        "getJobAdvice",
        "Resource requests that this job and earlier ones of its name suggest, with a line to paste.",
        of_path("job", charts.get_job_advice),
        charts.OneJobAdvice,
    ),
    Endpoint(
        "GET /jobs/{job}/logs/{stream}/search",
        "searchLog",
        "Positions of a text in the output of a job; `next` continues the search.",
        _search,
        LogMatches,
        query=SearchQuery,
        is_slow=True,
        section="logs",
    ),
    Endpoint(
        "GET /jobs/{job}/logs/{stream}/window",
        "getLogWindow",
        "Lines of the output of a job around a position; `next` continues.",
        _window,
        LogWindow,
        query=WindowQuery,
        section="logs",
    ),
    Endpoint(
        "GET /compare",
        "compare",
        "2 to 50 jobs or runs beside the first: numbers, facts that differ, curves, parameters.",
        _compare,
        comparison.Comparison,
        query=CompareQuery,
        is_slow=True,
    ),
)
