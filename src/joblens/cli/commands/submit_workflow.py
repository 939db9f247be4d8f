"""`joblens submit-workflow`: submits several tasks of tools, in sequence or in parallel."""

import sys
from typing import TYPE_CHECKING, Any

import click

from joblens.cli.commands.submitted import TIMED_OUT, report_running, with_unit
from joblens.cli.context import Session
from joblens.cli.options.common import click_options, complete_file, shared_options
from joblens.cli.options.groups import GroupedCommand
from joblens.cli.options.table import QUEUE_OPTIONS
from joblens.model.errors import InputError

if TYPE_CHECKING:
    from joblens.app.queue.watch import SubmittedTasks

_OWN = ("--wait", "--wait-timeout")


@click.command("submit-workflow", cls=GroupedCommand)
@click.argument("file", metavar="FILE", shell_complete=complete_file)
@click.option(
    "--sequential/--parallel",
    default=None,
    help="Run tasks one after another, stopping at a failure, or all at once. "
    "Default: as in FILE, else --sequential.",
)
@click_options([row for row in QUEUE_OPTIONS if row.flags[-1] not in _OWN])
@click.option("--wait", is_flag=True, help="Wait for all tasks; exit code 1 if any failed.")
@click.option(
    "-t",
    "--wait-timeout",
    metavar="TIME",
    help="With --wait: stop waiting after TIME (exit code 124); the tasks keep running.",
)
@shared_options
def command(session: Session, /, **values: Any) -> None:
    """Submit the tasks of FILE to a queue, all or none. FILE is a JSON or YAML list of {tool, script,
    params}, or has one under 'tasks'.

    Prints the workflow's ID, for workflow-status, wait and cancel. When a task of a sequence fails, the
    remaining tasks are cancelled.
    """
    from joblens.app.jobs.requests import seconds_of
    from joblens.app.queue.tool_tasks import load_tasks
    from joblens.app.queue.watch import submit_together

    if values["wait_timeout"] is not None and not values["wait"]:
        raise InputError("-t needs --wait")
    timeout_s = seconds_of("-t", values["wait_timeout"])
    for setting in ("broker", "retry_lost"):
        session.override(f"queue.{setting}", values[setting])
    session.override("queue.name", values["queue"])
    session.warn_of_broker(values["broker"])
    loaded = load_tasks(values["file"], session.settings, sequential=values["sequential"])
    submitted = submit_together(
        loaded.requests,
        session.settings,
        session.options.config,
        session.warn,
        sequential=loaded.sequential,
        name=loaded.name,
    )
    if values["wait"]:
        _wait(session, submitted, timeout_s, values["wait_timeout"])
        return
    _say(session, submitted)


def _say(session: Session, submitted: "SubmittedTasks") -> None:
    from joblens.model.values.units import counted

    if session.json:
        session.write_json({"workflow_id": submitted.workflow_id, "task_ids": list(submitted.uuids)})
    elif session.is_terminal:
        session.write(f"Submitted {submitted.workflow_id}: {counted(len(submitted.uuids), 'task')}\n")
        session.write(f"See it with: joblens workflow-status {submitted.workflow_id}\n")
    else:
        session.write(f"{submitted.workflow_id}\n")


def _wait(
    session: Session, submitted: "SubmittedTasks", timeout_s: float | None, timeout: str | None
) -> None:
    from joblens.app.queue.watch import workflow_status
    from joblens.views.runs.tasks import render_workflow

    if not session.json:
        _say(session, submitted)
        session.flush()  # the id must be known even if this process is killed while it waits
    with report_running(session, submitted.workflow_id, submitted.workflow_id):
        is_over = _followed(session, submitted.uuids, timeout_s)
    status = workflow_status(session.queue_store, submitted.uuids)
    if session.json:
        session.write_json(status)
    else:
        session.write_lines(render_workflow(status, width=session.table_width, paint=session.palette))
    if not is_over:
        session.note(f"joblens: {submitted.workflow_id} has not ended after {with_unit(timeout)}")
        sys.exit(TIMED_OUT)
    sys.exit(0 if status["all_successful"] else 1)


def _followed(session: Session, uuids: tuple[str, ...], timeout_s: float | None) -> bool:
    """Shows a bar on a terminal. Returns whether all have ended."""
    import time

    from joblens.app.queue.watch import states_until_final
    from joblens.cli.terminal import ProgressBar

    session.wait_for_store(timeout_s)
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    ended = 0
    with ProgressBar("tasks", len(uuids), poll_every=0) as bar:
        for states in states_until_final(
            session.queue_store, uuids, session.restart_embedded_worker, None, deadline
        ):
            now = sum(status.is_final for status in states.values())
            bar.advance(now - ended)
            ended = now
            if ended < len(uuids) and deadline is not None and time.monotonic() >= deadline:
                return False
    return True
