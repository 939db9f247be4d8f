"""The rows of `joblens workflows`, counted from results: no run is put together again for it."""

import time
from typing import Any

from msgspec import to_builtins

from joblens.agent.runtime.owners import is_gone
from joblens.analysis.runs.run_time import driven_s
from joblens.analysis.runs.workflow_rows import INTERRUPTED, RunRow, TaskGroupRow, WorkflowRow, run_label
from joblens.app.runs.lookup import kept_results
from joblens.engine.schedule.replay import was_withdrawn
from joblens.model.jobs.job import Status
from joblens.model.runs.run import JobResult, OutputsMissing, Run, RunStatus, Workflow
from joblens.model.values.units import format_instant
from joblens.ports.store import Store
from joblens.probes.host.machine_load import HostFacts, read_host


def workflow_rows(store: Store) -> list[WorkflowRow]:
    host = read_host()
    rows = []
    for workflow in store.workflows():
        if workflow.is_of_commands:
            continue
        runs = store.runs(workflow.uuid)
        last = _run_row(store, runs[-1], host) if runs else None
        rows.append(WorkflowRow(workflow=workflow, runs=len(runs), last=last))
    return rows


def run_rows(store: Store, workflow: Workflow) -> list[RunRow]:
    host = read_host()
    return [_run_row(store, run, host) for run in store.runs(workflow.uuid)]


def _run_row(store: Store, run: Run, host: HostFacts) -> RunRow:
    kept = kept_results(store, run)
    own = store.run_results(run.uuid)
    results = [*(kept.results if kept else ()), *own]
    events = [event for _, event in store.run_events(run.uuid)]
    without_output = {
        (event.fact.index, event.fact.attempt) for event in events if isinstance(event.fact, OutputsMissing)
    }
    done, failed = _counted(results, without_output)
    status = status_of(run, host)
    now_us = time.time_ns() // 1000 if status == RunStatus.RUNNING else None
    return RunRow(run=run, status=status, done=done, failed=failed, took_s=driven_s(events, own, now_us))


def _counted(results: list[JobResult], without_output: set[tuple[int, int]]) -> tuple[int, int]:
    """Jobs that succeeded, and jobs whose last attempt has ended otherwise."""
    succeeded: set[int] = set()
    last: dict[int, Status] = {}
    for result in results:
        if was_withdrawn(result):
            continue
        last[result.index] = result.status
        if result.status is Status.SUCCESS:
            if (result.index, result.attempt) in without_output:
                last[result.index] = Status.FAILED
            else:
                succeeded.add(result.index)
    failed = sum(status.is_final for index, status in last.items() if index not in succeeded)
    return len(succeeded), failed


def status_of(run: Run, host: HostFacts) -> str:
    if run.status is RunStatus.RUNNING and run.owner is not None and is_gone(run.owner, host):
        return INTERRUPTED
    return run.status.value


def workflow_form(row: WorkflowRow) -> dict[str, Any]:
    """For --json."""
    form: dict[str, Any] = to_builtins(row.workflow)
    return {
        "id": form.pop("number", None),
        **form,
        "created_time": format_instant(row.workflow.created_at_us),
        "runs": row.runs,
        "last_run": None if row.last is None else run_form(row.last),
    }


def task_group_form(row: TaskGroupRow) -> dict[str, Any]:
    """For --json: with the keys of a workflow that mean something here."""
    return {
        "id": row.workflow_id,
        "name": row.name,
        "created_time": format_instant(row.began_at_us),
        "status": row.status.value,
        "tasks": row.tasks,
        "completed": row.done,
        "failed": row.failed,
        "left": row.left,
        "runs": None,
        "last_run": None,
    }


def run_form(row: RunRow) -> dict[str, Any]:
    run = row.run
    return {
        "run": run_label(run),
        "run_id": run.number,
        "run_uuid": run.uuid,
        "status": row.status,
        "jobs": run.jobs,
        "completed": row.done,
        "failed": row.failed,
        "left": row.left,
        "created_time": format_instant(run.created_at_us),
        "start_time": _instant(run.started_at_us),
        "end_time": _instant(run.ended_at_us),
        "duration_seconds": None if row.status == RunStatus.RUNNING else row.took_s,
        "output_dir": run.options.output_dir,
        "job_output": run.logs_dir or None,
        "base_run_uuid": run.base_run_uuid,
        "user": run.user,
        "host": run.host,
    }


def _instant(at_us: int | None) -> str | None:
    return None if at_us is None else format_instant(at_us)
