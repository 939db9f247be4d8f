"""Workflows and runs as the server shows them."""

from typing import Annotated

from msgspec import Meta, Struct, structs
from msgspec.structs import replace

from joblens.analysis.runs.status import RunRow, WorkflowRow
from joblens.analysis.runs.table import ResultRow
from joblens.app.runs.lookup import find_run as run_meant
from joblens.app.runs.tables import listed_workflows, result_rows, run_rows, workflow_rows
from joblens.app.server.access import Principal
from joblens.app.workflows.loader import plan_of_run
from joblens.model.errors import UnknownWorkflow
from joblens.model.runs.plan import Plan
from joblens.model.runs.run import Run, RunEvent, Workflow
from joblens.ports.store import QueueStore


class PageQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=1000)] = 50
    after: Annotated[int, Meta(ge=0, le=2**62)] = 0


class Workflows(Struct, frozen=True, kw_only=True):
    items: tuple[WorkflowRow, ...]
    next: int | None = None


class RunList(Struct, frozen=True, kw_only=True):
    items: tuple[RunRow, ...]
    next: int | None = None


class RunJob(ResultRow, frozen=True, kw_only=True):
    status: str  # the state in a word: completed, failed, running, …


class RunJobs(Struct, frozen=True, kw_only=True):
    items: tuple[RunJob, ...]
    next: int | None = None


class NumberedEvent(Struct, frozen=True, kw_only=True):
    number: int
    event: RunEvent


class RunEvents(Struct, frozen=True, kw_only=True):
    items: tuple[NumberedEvent, ...]
    next: int | None = None


def find_run(store: QueueStore, caller: Principal, ident: str) -> Run:
    """Raises UnknownRun or AmbiguousRun."""
    return caller.find(lambda: run_meant(store, ident), lambda run: run.user, caller.unknown_run(ident))


def find_workflow(store: QueueStore, caller: Principal, ident: str) -> Workflow:
    unknown = UnknownWorkflow(f"no workflow of {caller.user} has the ID '{ident[:80]}', or several have it")
    return caller.find(lambda: store.find_workflow(ident), lambda workflow: workflow.user, unknown)


def list_workflows(store: QueueStore, caller: Principal, page: PageQuery) -> Workflows:
    """Returns workflows, newest first. `after` is the number of the last one of the page before."""
    found = [
        each
        for each in listed_workflows(store)
        if caller.may_see_user(each.user) and (not page.after or (each.number or 0) < page.after)
    ]
    items = tuple(workflow_rows(store, found[: page.limit]))
    more = len(found) > page.limit
    return Workflows(items=items, next=items[-1].workflow.number if more else None)


def list_runs(store: QueueStore, caller: Principal, ident: str, page: PageQuery) -> RunList:
    """Returns runs of a workflow, newest first."""
    workflow = find_workflow(store, caller, ident)
    rows = [
        _short(row)
        for row in reversed(run_rows(store, workflow))
        if caller.may_see_user(row.run.user) and (not page.after or (row.run.number or 0) < page.after)
    ]
    items = tuple(rows[: page.limit])
    return RunList(items=items, next=items[-1].run.number if len(rows) > page.limit else None)


def _short(row: RunRow) -> RunRow:
    """Workflow without the file's text, which only the run itself shows."""
    return replace(row, run=replace(row.run, spec_text="", tables={}))


def list_run_jobs(store: QueueStore, caller: Principal, ident: str, page: PageQuery) -> RunJobs:
    """Returns every job of the plan with its last attempt. `after`: how many to skip."""
    rows = result_rows(store, find_run(store, caller, ident))
    items = tuple(
        RunJob(**structs.asdict(row), status=row.state.label)
        for row in rows[page.after : page.after + page.limit]
    )
    end = page.after + len(items)
    return RunJobs(items=items, next=end if end < len(rows) else None)


def list_run_events(store: QueueStore, caller: Principal, ident: str, page: PageQuery) -> RunEvents:
    run = find_run(store, caller, ident)
    found = store.run_events(run.uuid, page.after)
    items = tuple(NumberedEvent(number=number, event=event) for number, event in found[: page.limit])
    return RunEvents(items=items, next=items[-1].number if len(found) > page.limit else None)


def get_plan(store: QueueStore, caller: Principal, ident: str) -> Plan:
    """Returns the plan of a run as it is recorded: without secrets."""
    return plan_of_run(find_run(store, caller, ident))
