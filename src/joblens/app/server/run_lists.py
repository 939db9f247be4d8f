"""Lists of runs for pages: runs of all workflows, one workflow with its runs and its right-sizing advice."""

import difflib
import threading
from typing import Annotated

from msgspec import Meta, Struct

from joblens.analysis.runs.status import RunRow, run_label
from joblens.app.runs.tables import listed_workflows, run_row
from joblens.app.server.access import Principal
from joblens.app.server.runs import find_workflow
from joblens.model.errors import InputError
from joblens.model.runs.run import Run, RunStatus, Workflow
from joblens.ports.store import QueueStore

_MOST_ADVISED = 20_000  # jobs that advice is computed from while a page waits
_MOST_RUNS = 200  # of a workflow's page
_MOST_KNOWN = 5000  # ended runs whose counts are in memory


class RunsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    after: Annotated[int, Meta(ge=0, le=2**40)] = 0  # how many to skip


class RunLine(Struct, frozen=True, kw_only=True):
    uuid: str
    label: str  # 3.1
    name: str  # of the workflow
    workflow: str  # uuid
    status: str  # as RunStatus, or interrupted
    jobs: int
    done: int
    failed: int
    left: int
    created_at_us: int
    started_at_us: int | None
    ended_at_us: int | None
    took_s: float | None
    user: str
    host: str


class RunLines(Struct, frozen=True, kw_only=True):
    at_us: int
    total: int
    items: tuple[RunLine, ...]  # newest first
    next: int | None = None


class WorkflowPage(Struct, frozen=True, kw_only=True):
    at_us: int
    workflow: Workflow
    total: int
    runs: tuple[RunLine, ...]  # the newest, newest first


class AdviceLine(Struct, frozen=True, kw_only=True):
    group: str
    resource: str
    current: str  # '': not set
    recommended: str
    is_change: bool
    reason: str
    jobs: int
    confidence: str


class WorkflowAdvice(Struct, frozen=True, kw_only=True):
    """`diff`: of the file as it was in the newest run; without it `reason` says why."""

    command: str  # that changes the file
    run: str | None
    runs: int
    advice: tuple[AdviceLine, ...] = ()
    diff: tuple[str, ...] = ()
    thin: tuple[str, ...] = ()  # groups with too few measurements to lower them
    reason: str = ""


class RunLists:
    """Keeps the counts of ended runs: reading them again would read every result. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[object, ...], RunLine] = {}

    def list_runs(self, store: QueueStore, caller: Principal, query: RunsQuery) -> RunLines:
        found = [
            (run, workflow)
            for workflow in listed_workflows(store)
            for run in store.runs(workflow.uuid)
            if caller.may_see_user(run.user)
        ]
        found.sort(key=lambda each: (each[0].created_at_us, each[0].uuid), reverse=True)
        end = query.after + query.limit
        return RunLines(
            at_us=store.now_us(),
            total=len(found),
            items=tuple(self._line(store, run, workflow) for run, workflow in found[query.after : end]),
            next=end if end < len(found) else None,
        )

    def get_workflow(self, store: QueueStore, caller: Principal, ident: str) -> WorkflowPage:
        workflow = find_workflow(store, caller, ident)
        runs = [run for run in store.runs(workflow.uuid) if caller.may_see_user(run.user)]
        return WorkflowPage(
            at_us=store.now_us(),
            workflow=workflow,
            total=len(runs),
            runs=tuple(self._line(store, run, workflow) for run in runs[: -_MOST_RUNS - 1 : -1]),
        )

    def _line(self, store: QueueStore, run: Run, workflow: Workflow) -> RunLine:
        key = (run.uuid, run.status, run.ended_at_us, run.jobs)
        with self._lock:
            known = self._known.get(key)
        if known is not None:
            return known
        line = _line_of(run_row(store, run), workflow)
        if run.status not in (RunStatus.CREATED, RunStatus.RUNNING):
            with self._lock:
                if len(self._known) >= _MOST_KNOWN:
                    self._known.clear()
                self._known[key] = line
        return line


def _line_of(row: RunRow, workflow: Workflow) -> RunLine:
    run = row.run
    return RunLine(
        uuid=run.uuid,
        label=run_label(run),
        name=workflow.name,
        workflow=workflow.uuid,
        status=row.status,
        jobs=run.jobs,
        done=row.done,
        failed=row.failed,
        left=row.left,
        created_at_us=run.created_at_us,
        started_at_us=run.started_at_us,
        ended_at_us=run.ended_at_us,
        took_s=row.took_s,
        user=run.user,
        host=run.host,
    )


def get_workflow_advice(store: QueueStore, caller: Principal, ident: str) -> WorkflowAdvice:
    """Returns the advice of `joblens rightsize --diff` for the file as it was in the newest run: the server
    reads no file of others."""
    from joblens.app.reports.rightsize_files import edited, recorded_spec
    from joblens.app.reports.rightsizing import size_workflow

    workflow = find_workflow(store, caller, ident)
    command = f"joblens rightsize {workflow.number} --write"
    runs = [run for run in store.runs(workflow.uuid) if not run.is_command]
    if not runs:
        return WorkflowAdvice(command=command, run=None, runs=0, reason="it has not been run")
    if not all(caller.may_see_user(run.user) for run in runs):
        return WorkflowAdvice(command=command, run=None, runs=0, reason="some of its runs are of other users")
    most = _runs_within(runs, _MOST_ADVISED)
    if most == 0:
        reason = f"the newest run has {runs[-1].jobs:,} jobs, too many to wait for here"
        return WorkflowAdvice(command=command, run=run_label(runs[-1]), runs=0, reason=reason)
    run = store.find_run(runs[-1].uuid)
    try:
        file = recorded_spec(workflow, run)
        sizing = size_workflow(store, run, most_runs=most)
        change = edited(file, sizing.groups, adds=True, forces=False)
    except InputError as error:
        return WorkflowAdvice(command=command, run=run_label(run), runs=most, reason=str(error))
    lines = difflib.unified_diff(
        file.text.splitlines(), change.text.splitlines(), file.path, file.path, lineterm=""
    )
    return WorkflowAdvice(
        command=command if change.text == file.text else f"{command} --add",
        run=run_label(run),
        runs=len(sizing.runs),
        advice=tuple(
            AdviceLine(
                group=group.group.name,
                resource=part.resource,
                current=part.current_text,
                recommended=part.recommended_text,
                is_change=part.is_change,
                reason=part.reason,
                jobs=group.jobs,
                confidence=group.confidence,
            )
            for group in sizing.groups
            for part in group.advice
        ),
        diff=tuple(lines),
        thin=change.kept,
        reason="" if sizing.groups else "nothing was measured yet: none of its jobs has ended",
    )


def _runs_within(runs: list[Run], most_jobs: int) -> int:
    """Counts the newest runs that have at most so many jobs together."""
    total = 0
    for number, run in enumerate(reversed(runs)):
        total += run.jobs
        if total > most_jobs:
            return number
    return len(runs)
