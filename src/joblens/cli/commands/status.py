"""`joblens status`: status and result of a queued job, or of a workflow of such jobs."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from joblens.cli.commands.submitted import clear_line, report_running
from joblens.cli.context import Session
from joblens.cli.options.common import job_argument, shared_options
from joblens.cli.options.groups import GroupedCommand

Report = Callable[[dict[str, Any]], None]


@click.command("status", cls=GroupedCommand)
@job_argument
@click.option("-m", "--monitor", is_flag=True, help="Follow the job until it ends.")
@click.option(
    "-i", "--interval", default="2s", metavar="TIME", show_default=True, help="With -m: polling interval."
)
@shared_options
def command(session: Session, ident: str, monitor: bool, interval: str) -> None:
    """Show a job's status, in the terms of task queues: PENDING, STARTED, SUCCESS, FAILURE, REVOKED
    (cancelled) or RETRY (worker lost, waiting for another one); and its result once it has ended. For a
    workflow ID (wf-…), show the status of its tasks."""
    from joblens.app.jobs.queries import find
    from joblens.app.jobs.requests import seconds_of
    from joblens.app.queue.watch import WORKFLOW_PREFIX, find_group, task_status, unknown_workflow
    from joblens.model.errors import InputError, UnknownJob
    from joblens.views.runs.tasks import live_line, render_status

    interval_s = seconds_of("--interval", interval)
    if not interval_s:
        raise InputError(f"--interval {interval}: must be more than 0")
    if monitor:
        session.wait_for_store()
    store = session.current_store
    group = find_group(store, ident)
    if group is not None:
        show_workflow(session, group.uuids, interval_s if monitor else None)
        return
    try:
        record = find(store, ident, session.note)
    except UnknownJob:
        if ident.startswith(WORKFLOW_PREFIX):
            raise unknown_workflow(ident) from None
        raise
    status = task_status(session.queue_store, record)
    if monitor and not status["ready"]:
        with report_running(session, f"job {record.job.uuid}", record.job.uuid):
            status = follow_status(session, record.job.uuid, interval_s, _reporter(session, live_line))
        clear_line()
    if session.json:
        write = session.write_json_line if monitor else session.write_json
        write(status)
        return
    session.write_lines(render_status(status, paint=session.palette))


def follow_status(
    session: Session,
    uuid: str,
    interval_s: float,
    report: Report,
    timeout_s: float | None = None,
) -> dict[str, Any]:
    """Returns the status at its end, or at the time-out."""
    import time

    from joblens.app.jobs.queries import records_until_final
    from joblens.app.queue.watch import task_status

    session.wait_for_store(timeout_s)
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    reported_at = -interval_s
    for record in records_until_final(session.store, uuid, session.restart_embedded_worker):
        is_late = deadline is not None and time.monotonic() >= deadline
        if record.status.is_final or is_late:
            break
        if time.monotonic() - reported_at >= interval_s:
            report(task_status(session.queue_store, record))
            reported_at = time.monotonic()
    return task_status(session.queue_store, record)


def show_workflow(session: Session, uuids: Sequence[str], every_s: float | None = None) -> None:
    """`every_s`: waits for its end first, with a report at this interval."""
    from joblens.app.queue.watch import workflow_status
    from joblens.views.runs.tasks import render_workflow, workflow_text

    if every_s is not None:
        session.wait_for_store()
    status = workflow_status(session.queue_store, uuids)
    if every_s is not None and not status["all_complete"]:
        ident = status["workflow_id"]
        with report_running(session, ident, ident):
            _follow_workflow(session, uuids, every_s, _reporter(session, workflow_text))
        clear_line()
        status = workflow_status(session.queue_store, uuids)
    if session.json:
        write = session.write_json if every_s is None else session.write_json_line
        write(status)
        return
    session.write_lines(render_workflow(status, width=session.table_width, paint=session.palette))


def _follow_workflow(session: Session, uuids: Sequence[str], every_s: float, report: Report) -> None:
    import time

    from joblens.app.queue.watch import states_until_final, workflow_status

    reported_at = -every_s
    for states in states_until_final(session.queue_store, uuids, session.restart_embedded_worker):
        if (
            any(not status.is_final for status in states.values())
            and time.monotonic() - reported_at >= every_s
        ):
            report(workflow_status(session.queue_store, uuids))
            reported_at = time.monotonic()


def _reporter(session: Session, ids: Callable[[dict[str, Any]], str]) -> Report:
    if session.json:
        return session.write_json_line
    if sys.stdout.isatty():
        return terminal_line(session, ids)

    def report(status: dict[str, Any]) -> None:
        session.write(f"{ids(status)}\n")
        session.flush()

    return report


def terminal_line(session: Session, ids: Callable[[dict[str, Any]], str]) -> Report:
    """Writes one line that the next output replaces, on a terminal."""
    from joblens.views.text.style import fit

    def report(status: dict[str, Any]) -> None:
        sys.stderr.write(f"\r\x1b[K{fit(ids(status), session.width - 1)}\r")
        sys.stderr.flush()

    return report
