"""`joblens wait`: waits until jobs, runs or workflows have ended."""

import time
from typing import TYPE_CHECKING, Any

import click

from joblens.cli.commands.submitted import TIMED_OUT, with_unit
from joblens.cli.context import Session
from joblens.cli.options.common import jobs_or_runs_argument, shared_options
from joblens.cli.options.groups import GroupedCommand

if TYPE_CHECKING:
    from joblens.app.jobs.queries import Recover
    from joblens.app.queue.watch import TaskGroup
    from joblens.model.jobs.job import Record
    from joblens.model.runs.run import Run

    Found = Record | Run | TaskGroup


@click.command("wait", cls=GroupedCommand)
@jobs_or_runs_argument
@click.option(
    "-t", "--timeout", metavar="TIME", help="Stop waiting after TIME (exit code 124); the jobs keep running."
)
@shared_options
def command(session: Session, idents: tuple[str, ...], timeout: str | None) -> int:
    """Wait until jobs, runs or workflows (wf-…) have ended. The exit code is the job's; for a run or
    workflow, 0 if all jobs succeeded, else 1; for several IDs, the first that is not 0."""
    from joblens.app.jobs.requests import seconds_of
    from joblens.app.queue.watch import find_any, has_ended

    timeout_s = seconds_of("--timeout", timeout)
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    session.own_jobs()
    session.wait_for_store(timeout_s)
    store = session.current_store
    # an unknown id is reported at once, not after the first job has ended
    found = [find_any(store, ident, session.note) for ident in idents]
    ended = []
    for one in found:
        left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        now = _awaited(session, one, left_s)
        if not has_ended(now):
            session.note(f"joblens: {_called(now)} after {with_unit(timeout)}")
            return TIMED_OUT
        ended.append(now)
    if session.json:
        forms = [_form(one) for one in ended]
        session.write_json(forms[0] if len(forms) == 1 else forms)
    return next((code for code in map(_exit_code, ended) if code), 0)


def _awaited(session: Session, one: "Found", left_s: float | None) -> "Found":
    from joblens.app.jobs.queries import wait_for_end
    from joblens.app.queue.watch import TaskGroup, wait_for_group
    from joblens.app.runs.control import wait_for_run
    from joblens.model.jobs.job import Record

    if isinstance(one, TaskGroup):
        return wait_for_group(session.queue_store, one, left_s, session.restart_embedded_worker)
    if isinstance(one, Record):
        recover = _recover_for(session, one)
        return wait_for_end(session.store, one.job.uuid, left_s, recover)
    return wait_for_run(session.store, one.uuid, session.drivers, left_s, session.recover_orphans)


def _recover_for(session: Session, record: "Record") -> "Recover":
    from joblens.cli.commands.run_on_engine import restart_driver

    if record.job.run is not None and record.job.run.is_command:
        return lambda: restart_driver(session, record)
    return session.restart_embedded_worker if record.job.queue else session.recover_orphans


def _called(one: "Found") -> str:
    """Returns 'job … is still running'."""
    from joblens.analysis.runs.status import run_label
    from joblens.app.queue.watch import TaskGroup
    from joblens.model.jobs.job import Record

    if isinstance(one, TaskGroup):
        return f"{one.workflow_id} has not ended"
    name = f"job {one.job.uuid}" if isinstance(one, Record) else f"run {run_label(one)}"
    return f"{name} is still {one.status.value}"


def _exit_code(one: "Found") -> int:
    from joblens.app.jobs.queries import exit_code_of
    from joblens.app.queue.watch import TaskGroup
    from joblens.model.jobs.job import Record, Status
    from joblens.model.runs.run import RunStatus

    if isinstance(one, TaskGroup):
        return 0 if all(record.status is Status.SUCCESS for record in one.records) else 1
    if isinstance(one, Record):
        return exit_code_of(one)
    return 0 if one.status is RunStatus.COMPLETED else 1


def _form(one: "Found") -> dict[str, Any]:
    from joblens.analysis.formats.history import to_history_record
    from joblens.analysis.runs.status import run_label
    from joblens.app.queue.watch import TaskGroup
    from joblens.model.jobs.job import Record

    if isinstance(one, TaskGroup):
        return {"workflow_id": one.workflow_id, "tasks": [_form(record) for record in one.records]}
    if isinstance(one, Record):
        return to_history_record(one)
    return {"run": run_label(one), "run_uuid": one.uuid, "run_status": one.status.value}
