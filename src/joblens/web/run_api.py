"""Endpoints of workflows and runs, tools, workers and health."""

from typing import Any

from msgspec import Struct

from joblens.app.server import runs
from joblens.app.server.changes import RunBody, RunRerun
from joblens.app.server.machine import Health, NamePage, Tools, Workers, get_health, get_tools, get_workers
from joblens.model.access import Role
from joblens.model.runs.run import Run, Workflow
from joblens.web.endpoints import Call, Endpoint
from joblens.web.job_api import changer


class PlanDocument(Struct, frozen=True, kw_only=True):
    """The plan of a run as it is recorded."""

    plan: dict[str, Any]


def _run(call: Call) -> str:
    return call.path["run"]


def _plan(call: Call) -> PlanDocument:
    from msgspec import to_builtins

    return PlanDocument(plan=to_builtins(runs.get_plan(call.store, call.principal, _run(call))))


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/workflows",
        name="listWorkflows",
        summary="Workflows and the state of their newest run, newest first.",
        answer=lambda call: runs.list_workflows(call.store, call.principal, call.query),
        returns=runs.Workflows,
        query=runs.PageQuery,
        section="runs",
    ),
    Endpoint(
        method="GET",
        path="/workflows/{workflow}",
        name="getWorkflow",
        summary="One workflow.",
        answer=lambda call: runs.find_workflow(call.store, call.principal, call.path["workflow"]),
        returns=Workflow,
        section="runs",
    ),
    Endpoint(
        method="GET",
        path="/workflows/{workflow}/runs",
        name="listRuns",
        summary="Runs of a workflow, newest first.",
        answer=lambda call: runs.list_runs(call.store, call.principal, call.path["workflow"], call.query),
        returns=runs.RunList,
        query=runs.PageQuery,
        section="runs",
    ),
    Endpoint(
        method="POST",
        path="/runs",
        name="startRun",
        is_slow=True,
        summary="Start a workflow in the background.",
        answer=lambda call: changer(call).start_run(call.body),
        returns=Run,
        body=RunBody,
        role=Role.OPERATOR,
        status=201,
        section="runs",
    ),
    Endpoint(
        method="GET",
        path="/runs/{run}",
        name="getRun",
        summary="One run, with the file as it was.",
        answer=lambda call: runs.get_run(call.store, call.principal, _run(call)),
        returns=Run,
        section="runs",
    ),
    Endpoint(
        method="GET",
        path="/runs/{run}/jobs",
        name="listRunJobs",
        is_slow=True,
        summary="Every job of a run with the numbers of its last attempt.",
        answer=lambda call: runs.list_run_jobs(call.store, call.principal, _run(call), call.query),
        returns=runs.RunJobs,
        query=runs.PageQuery,
        section="runs",
    ),
    Endpoint(
        method="GET",
        path="/runs/{run}/events",
        name="listRunEvents",
        summary="Events of a run in order.",
        answer=lambda call: runs.list_run_events(call.store, call.principal, _run(call), call.query),
        returns=runs.RunEvents,
        query=runs.PageQuery,
        section="runs",
    ),
    Endpoint(
        method="GET",
        path="/runs/{run}/plan",
        name="getPlan",
        is_slow=True,
        summary="The jobs and dependencies of a run.",
        answer=_plan,
        returns=PlanDocument,
        section="runs",
    ),
    Endpoint(
        method="POST",
        path="/runs/{run}/cancel",
        name="cancelRun",
        summary="Cancel a run.",
        answer=lambda call: changer(call).cancel_run(_run(call)),
        returns=Run,
        role=Role.OPERATOR,
        status=202,
        section="runs",
    ),
    Endpoint(
        method="POST",
        path="/runs/{run}/resume",
        name="resumeRun",
        is_slow=True,
        summary="Continue a run that was stopped, in the background.",
        answer=lambda call: changer(call).resume_run(_run(call)),
        returns=Run,
        role=Role.OPERATOR,
        status=202,
        section="runs",
    ),
    Endpoint(
        method="POST",
        path="/runs/{run}/rerun",
        name="rerunRun",
        is_slow=True,
        summary="Start a new run that repeats part of a run; other jobs keep their results.",
        answer=lambda call: changer(call).rerun_run(_run(call), call.body),
        returns=Run,
        body=RunRerun,
        role=Role.OPERATOR,
        status=201,
        section="runs",
    ),
    Endpoint(
        method="GET",
        path="/tools",
        name="listTools",
        summary="Tools that run scripts with parameters on the server's machine.",
        answer=lambda call: get_tools(call.query),
        returns=Tools,
        query=NamePage,
        section="server",
    ),
    Endpoint(
        method="GET",
        path="/workers",
        name="listWorkers",
        summary="Workers by name, and queues.",
        answer=lambda call: get_workers(call.store, call.principal, call.server.settings, call.query),
        returns=Workers,
        query=NamePage,
        section="server",
    ),
    Endpoint(
        method="GET",
        path="/health",
        name="getHealth",
        summary="Whether the server can read its store.",
        answer=lambda call: get_health(call.store),
        returns=Health,
        section="server",
    ),
)
