"""Endpoints of workflows, runs and recipes: one per question, and one per page of the dashboard; tools,
workers and health."""

import functools
from typing import Any

from msgspec import Struct

from joblens.app.server import recipe_views, run_charts, run_lists, run_views, runs
from joblens.app.server.changes import RunBody, RunRerun
from joblens.app.server.machine import Health, NamePage, Tools, Workers, get_health, get_tools, get_workers
from joblens.model.access import Role
from joblens.model.runs.run import Run, Workflow
from joblens.web.endpoints import Call, Endpoint, of_path, of_path_with_query, with_query
from joblens.web.job_api import changer


class PlanDocument(Struct, frozen=True, kw_only=True):
    """The plan of a run as it is recorded."""

    plan: dict[str, Any]


def _plan(call: Call) -> PlanDocument:
    from msgspec import to_builtins

    return PlanDocument(plan=to_builtins(runs.get_plan(call.store, call.principal, call.path["run"])))


def _table(call: Call) -> run_views.RunTable:
    return call.server.runs.get_table(call.store, call.principal, call.path["run"], call.query)


def _graph(call: Call) -> run_charts.GraphAnswer:
    return run_charts.get_graph(call.server.runs, call.store, call.principal, call.path["run"], call.query)


def _timeline(call: Call) -> run_charts.TimelineAnswer:
    return run_charts.get_timeline(call.server.runs, call.store, call.principal, call.path["run"], call.query)


_runs = functools.partial(Endpoint, section="runs")
_server = functools.partial(Endpoint, section="server")

ENDPOINTS = (
    _runs(
        "GET /workflows",
        "listWorkflows",
        "Workflows and the state of their newest run, newest first.",
        with_query(runs.list_workflows),
        runs.Workflows,
        query=runs.PageQuery,
    ),
    _runs(
        "GET /workflows/{workflow}",
        "getWorkflow",
        "One workflow.",
        of_path("workflow", runs.find_workflow),
        Workflow,
    ),
    _runs(
        "GET /workflows/{workflow}/runs",
        "listRuns",
        "Runs of a workflow, newest first.",
        of_path_with_query("workflow", runs.list_runs),
        runs.RunList,
        query=runs.PageQuery,
    ),
    _runs(
        "POST /runs",
        "startRun",
        "Start a workflow in the background.",
        lambda call: changer(call).start_run(call.body),
        Run,
        body=RunBody,
        role=Role.OPERATOR,
        is_slow=True,
        status=201,
    ),
    _runs(
        "GET /runs/{run}", "getRun", "One run, with the file as it was.", of_path("run", runs.find_run), Run
    ),
    _runs(
        "GET /runs/{run}/jobs",
        "listRunJobs",
        "Every job of a run with the numbers of its last attempt.",
        of_path_with_query("run", runs.list_run_jobs),
        runs.RunJobs,
        query=runs.PageQuery,
        is_slow=True,
    ),
    _runs(
        "GET /runs/{run}/events",
        "listRunEvents",
        "Events of a run in order.",
        of_path_with_query("run", runs.list_run_events),
        runs.RunEvents,
        query=runs.PageQuery,
    ),
    _runs(
        "GET /runs/{run}/plan",
        "getPlan",
        "The jobs and dependencies of a run.",
        _plan,
        PlanDocument,
        is_slow=True,
    ),
    _runs(
        "POST /runs/{run}/cancel",
        "cancelRun",
        "Cancel a run.",
        lambda call: changer(call).cancel_run(call.path["run"]),
        Run,
        role=Role.OPERATOR,
        status=202,
    ),
    _runs(
        "POST /runs/{run}/resume",
        "resumeRun",
        "Continue a run that was stopped, in the background.",
        lambda call: changer(call).resume_run(call.path["run"]),
        Run,
        role=Role.OPERATOR,
        is_slow=True,
        status=202,
    ),
    _runs(
        "POST /runs/{run}/rerun",
        "rerunRun",
        "Start a new run that repeats part of a run; other jobs keep their results.",
        lambda call: changer(call).rerun_run(call.path["run"], call.body),
        Run,
        body=RunRerun,
        role=Role.OPERATOR,
        is_slow=True,
        status=201,
    ),
    _server(
        "GET /tools",
        "listTools",
        "Tools that run scripts with parameters on the server's machine.",
        lambda call: get_tools(call.query),
        Tools,
        query=NamePage,
    ),
    _server(
        "GET /workers",
        "listWorkers",
        "Workers by name, and queues.",
        lambda call: get_workers(call.store, call.principal, call.server.settings, call.query),
        Workers,
        query=NamePage,
    ),
    _server(
        "GET /health",
        "getHealth",
        "Whether the server can read its store.",
        lambda call: get_health(call.store),
        Health,
    ),
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
