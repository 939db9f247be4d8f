"""Endpoints of the pages of runs, workflows and recipes: one answer per view."""

import functools

from joblens.app.server import recipe_views, run_charts, run_lists, run_views
from joblens.web.endpoints import Call, Endpoint, of_path


def _table(call: Call) -> run_views.RunTable:
    return call.server.runs.get_table(call.store, call.principal, call.path["run"], call.query)


def _graph(call: Call) -> run_charts.GraphAnswer:
    return run_charts.get_graph(call.server.runs, call.store, call.principal, call.path["run"], call.query)


def _timeline(call: Call) -> run_charts.TimelineAnswer:
    return run_charts.get_timeline(call.server.runs, call.store, call.principal, call.path["run"], call.query)


_runs = functools.partial(Endpoint, section="runs")

ENDPOINTS = (
    _runs(
        "GET /runs",
        "listAllRuns",
        "Runs of all workflows, newest first.",
        lambda call: call.server.run_lists.list_runs(call.store, call.principal, call.query),
        run_lists.RunLines,
        query=run_lists.RunsQuery,
        is_slow=True,
    ),
    _runs(
        "GET /workflows/{workflow}/page",
        "getWorkflowPage",
        "A workflow and its newest runs.",
        lambda call: call.server.run_lists.get_workflow(call.store, call.principal, call.path["workflow"]),
        run_lists.WorkflowPage,
    ),
    _runs(
        "GET /workflows/{workflow}/advice",
        "getWorkflowAdvice",
        "Resource requests that its runs suggest, and the change of its file as a diff.",
        of_path("workflow", run_lists.get_workflow_advice),
        run_lists.WorkflowAdvice,
        is_slow=True,
    ),
    _runs(
        "GET /runs/{run}/page",
        "getRunPage",
        "First view of a run: its state, counts, failed and running jobs.",
        of_path("run", run_views.get_run_page),
        run_views.RunPage,
    ),
    _runs(
        "GET /runs/{run}/table",
        "getRunTable",
        "All jobs of a run, column by column; with `since` only rows that changed.",
        _table,
        run_views.RunTable,
        query=run_views.TableQuery,
        is_slow=True,
    ),
    _runs(
        "GET /runs/{run}/graph",
        "getRunGraph",
        "Jobs and dependencies of a run with their positions in a drawing; large runs by group.",
        _graph,
        run_charts.GraphAnswer,
        query=run_charts.GraphQuery,
        is_slow=True,
    ),
    _runs(
        "GET /runs/{run}/timeline",
        "getRunTimeline",
        "When attempts waited and ran, the critical path, and machine use over time.",
        _timeline,
        run_charts.TimelineAnswer,
        query=run_charts.TimelineQuery,
        is_slow=True,
    ),
    Endpoint(
        "GET /jobs/{job}/recipe",
        "getRecipe",
        "Progress of a recipe's job: grid of partitions and operators, rows, rejects, checkpoints.",
        lambda call: call.server.recipes.get_page(call.store, call.principal, call.path["job"]),
        recipe_views.RecipePage,
    ),
)
