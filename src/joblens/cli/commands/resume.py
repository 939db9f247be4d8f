"""`joblens resume`: continues a run that was stopped or killed."""

from typing import TYPE_CHECKING, Any

import click

from joblens.cli.context import Session
from joblens.cli.options.common import run_argument, shared_options
from joblens.cli.options.groups import DRIVE_GROUPS, GroupedCommand
from joblens.cli.options.run import offer_options, take_queue_options, warn_of_other_broker, with_offer

if TYPE_CHECKING:
    from joblens.model.runs.run import Run


def _end_if_failed(session: Session, run: "Run") -> None:
    """Prints commands for a failed run in which nothing can continue, and exits with 1."""
    from joblens.analysis.runs.status import run_label
    from joblens.model.runs.run import RunStatus

    if run.status is RunStatus.FAILED and not session.json:
        session.write(
            f"Run {run_label(run)} failed and cannot be resumed\n"
            f"  joblens rerun {run_label(run)} --failed runs failed jobs and their dependents again,\n"
            f"  joblens recover {run_label(run)} with more memory or time for jobs that ran out of it\n"
        )
        raise SystemExit(1)


@click.command(cls=GroupedCommand, groups=DRIVE_GROUPS)
@run_argument
@offer_options
@shared_options
def command(session: Session, /, ident: str, **values: Any) -> None:
    """Continue RUN: skip jobs that succeeded, wait for jobs that are still running, and run the others.

    The exit code is that of 'run FILE': 0 if all jobs succeeded, 1 if any failed.
    """
    from msgspec.structs import replace

    from joblens.analysis.runs.status import run_label
    from joblens.app.driving.requests import resume_request, unfinished_jobs
    from joblens.app.runs.control import refuse_command
    from joblens.app.runs.lookup import find_named_run
    from joblens.cli.commands.run_spec import carry_out
    from joblens.model.runs.run import RunStatus

    session.own_runs()
    take_queue_options(session, values)
    run = find_named_run(session.store, ident, session.note)
    refuse_command(run, session.store)
    if run.status is RunStatus.COMPLETED and not session.json:
        session.write(f"Run {run_label(run)} is completed: nothing is left to do\n")
        return
    if session.server_url is not None:
        from joblens.cli.commands import on_server

        if run.status is RunStatus.FAILED and not unfinished_jobs(session.store, run)[1]:
            _end_if_failed(session, run)
        on_server.resume(session, run, values)
        return
    request, can_resume = resume_request(
        session.store, run, session.settings, lambda options: with_offer(options, values)
    )
    warn_of_other_broker(session, request.options)
    if not can_resume:
        _end_if_failed(session, run)
    request = replace(request, detach=values["detach"])
    known = session.store.find_workflow(run.workflow_uuid)
    carry_out(session, request, values, known=known, notify=values["notify"] or request.options.notify)
