"""Endpoints of the pages of runs, workflows and recipes: one answer per view."""

from joblens.app.server import run_charts, run_views
from joblens.web.endpoints import Call, Endpoint


def _page(call: Call) -> run_views.RunPage:
    return run_views.get_run_page(call.store, call.principal, call.path["run"])


def _table(call: Call) -> run_views.RunTable:
    return call.server.runs.get_table(call.store, call.principal, call.path["run"], call.query)


def _graph(call: Call) -> run_charts.GraphAnswer:
    return run_charts.get_graph(call.server.runs, call.store, call.principal, call.path["run"], call.query)


def _timeline(call: Call) -> run_charts.TimelineAnswer:
    return run_charts.get_timeline(call.server.runs, call.store, call.principal, call.path["run"], call.query)


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/runs/{run}/page",
        name="getRunPage",
        summary="First view of a run: its state, counts, failed and running jobs.",
        answer=_page,
        returns=run_views.RunPage,
        section="runs",
    ),
    Endpoint(
        method="GET",
        path="/runs/{run}/table",
        name="getRunTable",
        summary="All jobs of a run, column by column; with `since` only rows that changed.",
        answer=_table,
        returns=run_views.RunTable,
        query=run_views.TableQuery,
        section="runs",
    ),
    Endpoint(
        method="GET",
        path="/runs/{run}/graph",
        name="getRunGraph",
        summary="Jobs and dependencies of a run with their places in a drawing; large runs by group.",
        answer=_graph,
        returns=run_charts.GraphAnswer,
        query=run_charts.GraphQuery,
        section="runs",
    ),
    Endpoint(
        method="GET",
        path="/runs/{run}/timeline",
        name="getRunTimeline",
        summary="When attempts waited and ran, the critical path, and machine use over time.",
        answer=_timeline,
        returns=run_charts.TimelineAnswer,
        query=run_charts.TimelineQuery,
        section="runs",
    ),
)
