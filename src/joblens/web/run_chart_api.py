"""Endpoints of the pages of runs, workflows and recipes: one answer per view."""

from joblens.app.server import recipe_views, run_charts, run_lists, run_views
from joblens.web.endpoints import Call, Endpoint


def _page(call: Call) -> run_views.RunPage:
    return run_views.get_run_page(call.store, call.principal, call.path["run"])


def _table(call: Call) -> run_views.RunTable:
    return call.server.runs.get_table(call.store, call.principal, call.path["run"], call.query)


def _graph(call: Call) -> run_charts.GraphAnswer:
    return run_charts.get_graph(call.server.runs, call.store, call.principal, call.path["run"], call.query)


def _timeline(call: Call) -> run_charts.TimelineAnswer:
    return run_charts.get_timeline(call.server.runs, call.store, call.principal, call.path["run"], call.query)


def _advice(call: Call) -> run_lists.WorkflowAdvice:
    return run_lists.get_workflow_advice(call.store, call.principal, call.path["workflow"])


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/runs",
        name="listAllRuns",
        is_slow=True,
        summary="Runs of all workflows, newest first.",
        answer=lambda call: call.server.run_lists.list_runs(call.store, call.principal, call.query),
        returns=run_lists.RunLines,
        query=run_lists.RunsQuery,
        section="runs",
    ),
    Endpoint(
        method="GET",
        path="/workflows/{workflow}/page",
        name="getWorkflowPage",
        summary="A workflow and its newest runs.",
        answer=lambda call: call.server.run_lists.get_workflow(
            call.store, call.principal, call.path["workflow"]
        ),
        returns=run_lists.WorkflowPage,
        section="runs",
    ),
    Endpoint(
        method="GET",
        path="/workflows/{workflow}/advice",
        name="getWorkflowAdvice",
        is_slow=True,
        summary="Resource requests that its runs suggest, and the change of its file as a diff.",
        answer=_advice,
        returns=run_lists.WorkflowAdvice,
        section="runs",
    ),
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
        is_slow=True,
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
        is_slow=True,
        summary="Jobs and dependencies of a run with their positions in a drawing; large runs by group.",
        answer=_graph,
        returns=run_charts.GraphAnswer,
        query=run_charts.GraphQuery,
        section="runs",
    ),
    Endpoint(
        method="GET",
        path="/runs/{run}/timeline",
        name="getRunTimeline",
        is_slow=True,
        summary="When attempts waited and ran, the critical path, and machine use over time.",
        answer=_timeline,
        returns=run_charts.TimelineAnswer,
        query=run_charts.TimelineQuery,
        section="runs",
    ),
    Endpoint(
        method="GET",
        path="/jobs/{job}/recipe",
        name="getRecipe",
        summary="Progress of a recipe's job: grid of partitions and operators, rows, rejects, checkpoints.",
        answer=lambda call: call.server.recipes.get_page(call.store, call.principal, call.path["job"]),
        returns=recipe_views.RecipePage,
        section="jobs",
    ),
)
