"""`joblens cancel`: cancels jobs, runs or workflows."""

from typing import TYPE_CHECKING, Any

import click

from joblens.cli.context import Session
from joblens.cli.options.common import jobs_or_runs_argument, shared_options
from joblens.cli.options.groups import GroupedCommand
from joblens.model.errors import InputError
from joblens.model.values.ids import short

if TYPE_CHECKING:
    from joblens.app.queue.watch import TaskGroup
    from joblens.app.runs.state import RunJob
    from joblens.model.jobs.job import Record
    from joblens.model.runs.run import Run

    Found = Record | Run | RunJob | TaskGroup

_TIMEOUT_S = 60.0


@click.command(cls=GroupedCommand)
@jobs_or_runs_argument
@click.option("--job", "names", multiple=True, metavar="NAME", help="Cancel only this job of the run.")
@click.option("--no-wait", is_flag=True, help="Send the request without waiting for the jobs to end.")
@shared_options
def command(session: Session, /, idents: tuple[str, ...], names: tuple[str, ...], no_wait: bool) -> None:
    """Cancel jobs, runs or workflows (wf-…): SIGTERM, then SIGKILL after the grace time. None of their
    processes remains. A cancelled run starts no more jobs; 'joblens resume' continues it.

    Jobs of a run that are waiting to start or to be retried are not started.
    """
    found = _found(session, idents, names)
    remote = session.remote
    if remote is not None:
        from joblens.cli.commands import on_server

        on_server.cancel(remote, found, _is_over)
    else:
        _refuse_others(found)
        for one in found:
            _ask(session, one)
    # Only now: a job that waits for a supervisor must not start first.
    session.recover_orphans()
    ended = [one if no_wait else _awaited(session, one) for one in found]
    if session.json:
        session.write_json([_form(one) for one in ended])
        return
    for before, one in zip(found, ended, strict=True):
        session.write(f"{_line(one)}{'  (had already ended)' if _is_over(before) else ''}\n")


def _found(session: Session, idents: tuple[str, ...], names: tuple[str, ...]) -> "list[Found]":
    from joblens.app.queue.watch import find_any
    from joblens.app.runs.lookup import unfinished_run
    from joblens.app.runs.state import job_of_run

    store = session.store
    if names:
        if len(idents) != 1:
            raise InputError("--job needs exactly one run", hint="joblens cancel RUN --job NAME")
        run = unfinished_run(store, idents[0], store.find_run(idents[0]), session.note)
        return [job_of_run(store, run, name) for name in names]
    found = [find_any(store, ident, session.note, is_to_change=True) for ident in idents]
    return [_job_or_run(session, ident, one) for ident, one in zip(idents, found, strict=True)]


def _job_or_run(session: Session, ident: str, one: "Found") -> "Found":
    from joblens.app.runs.lookup import unfinished_run
    from joblens.app.runs.state import waiting_job
    from joblens.model.jobs.job import Record
    from joblens.model.runs.run import Run

    if isinstance(one, Run):
        return unfinished_run(session.store, ident, one, session.note)
    return (isinstance(one, Record) and waiting_job(session.store, one)) or one


def _refuse_others(found: "list[Found]") -> None:
    """Checks all of them before any is cancelled."""
    from joblens.app.queue.submission import refuse_others_job
    from joblens.app.queue.watch import TaskGroup
    from joblens.app.wiring.agent_context import current_user
    from joblens.model.jobs.job import Record

    for one in found:
        records = one.records if isinstance(one, TaskGroup) else (one,)
        for record in records:
            if isinstance(record, Record) and record.job.queue:
                refuse_others_job(record, current_user())


def _is_over(one: "Found") -> bool:
    from joblens.app.queue.watch import has_ended
    from joblens.app.runs.state import RunJob

    return one.state.is_final if isinstance(one, RunJob) else has_ended(one)


def _ask(session: Session, one: "Found") -> None:
    from joblens.app.jobs.submission import request_cancel
    from joblens.app.queue.submission import cancel_queued
    from joblens.app.queue.watch import TaskGroup
    from joblens.app.runs.control import request_job_cancel, request_run_cancel
    from joblens.app.runs.state import RunJob
    from joblens.app.wiring.agent_context import current_user
    from joblens.model.jobs.job import Record

    store, settings, user = session.store, session.settings, current_user()
    if isinstance(one, RunJob):
        if not one.state.is_final:
            request_job_cancel(one.run, one.index, store, settings, user)
    elif isinstance(one, TaskGroup):
        cancel_queued(one.records, session.queue_store, settings, session.options.config)
    elif not isinstance(one, Record):
        request_run_cancel(one, store, settings, user)
    elif one.job.queue:
        cancel_queued([one], session.queue_store, settings, session.options.config)
    elif not one.status.is_final:
        request_cancel(one, store, settings, user)


def _awaited(session: Session, one: "Found") -> "Found":
    from msgspec.structs import replace

    from joblens.app.jobs.queries import wait_for_end
    from joblens.app.queue.watch import TaskGroup, wait_for_group
    from joblens.app.runs.control import wait_for_driver_exit, wait_for_job_of_run, wait_for_run
    from joblens.app.runs.state import RunJob
    from joblens.model.jobs.job import Record

    store, settings = session.store, session.settings
    timeout_s = settings.limits.grace + _TIMEOUT_S
    if isinstance(one, RunJob):
        state = wait_for_job_of_run(store, one.run, one.index, session.drivers, timeout_s)
        return replace(one, state=state)
    if isinstance(one, TaskGroup):
        timeout_s = max(record.job.grace_s for record in one.records) + _TIMEOUT_S
        return wait_for_group(session.queue_store, one, timeout_s, session.restart_embedded_worker)
    if not isinstance(one, Record):
        ended = wait_for_run(store, one.uuid, session.drivers, timeout_s, session.recover_orphans)
        if _is_over(ended):
            wait_for_driver_exit(ended, session.drivers, timeout_s)
        return ended
    if one.status.is_final:
        return one
    recover = session.restart_embedded_worker if one.job.queue else session.recover_orphans
    return wait_for_end(store, one.job.uuid, one.job.grace_s + _TIMEOUT_S, recover)


def _form(one: "Found") -> dict[str, Any]:
    from joblens.app.queue.watch import TaskGroup
    from joblens.app.runs.state import RunJob
    from joblens.model.jobs.job import Record

    if isinstance(one, TaskGroup):
        return {"workflow_id": one.workflow_id, "tasks": [_form(record) for record in one.records]}
    if isinstance(one, RunJob):
        return {"run_uuid": one.run.uuid, "job_name": one.name, "status": one.state.label}
    if isinstance(one, Record):
        return {"job_uuid": one.job.uuid, "status": one.status}
    return {"run_uuid": one.uuid, "status": one.status}


def _line(one: "Found") -> str:
    from joblens.analysis.runs.status import run_label
    from joblens.app.queue.watch import TaskGroup
    from joblens.app.runs.state import RunJob
    from joblens.model.jobs.job import Record

    if isinstance(one, TaskGroup):
        from joblens.app.queue.task_results import task_counts
        from joblens.views.runs.tasks import workflow_text

        return f"{one.workflow_id}  {workflow_text(task_counts(one.records))}"
    if isinstance(one, RunJob):
        return f"{run_label(one.run)}  {one.state.label}  {one.name}"
    if isinstance(one, Record):
        return f"{short(one.job.uuid)}  {one.status}  {one.job.name}"
    return f"{run_label(one)}  {one.status}"
