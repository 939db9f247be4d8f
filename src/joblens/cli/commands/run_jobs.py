"""`joblens run-jobs`: runs the jobs of a stored workflow."""

import os
from typing import Any

import click
from msgspec.structs import replace

from joblens.cli.context import Session
from joblens.cli.options.common import complete_run, shared_options
from joblens.cli.options.groups import DRIVE_GROUPS, GroupedCommand
from joblens.cli.options.run import offer_options, take_queue_options, warn_of_other_broker, with_offer


@click.command("run-jobs", cls=GroupedCommand, groups=DRIVE_GROUPS)
@click.argument("ident", metavar="WORKFLOW", shell_complete=complete_run)
@offer_options
@shared_options
def command(session: Session, /, ident: str, **given: Any) -> None:
    """Run all jobs of WORKFLOW, a number or a name, in a new run. 'workflows create-from-spec' creates
    one."""
    from joblens.app.driving.checks import RunRequest
    from joblens.app.runs.control import refuse_command
    from joblens.app.runs.specs import hide_secrets, whole_run
    from joblens.app.workflows.loader import loaded_run
    from joblens.cli.commands.run_spec import carry_out
    from joblens.model.errors import UnknownRun
    from joblens.model.runs.run import RunStatus

    session.own_runs()
    take_queue_options(session, given)
    store = session.store
    workflow = store.find_workflow(ident)
    runs = store.runs(workflow.uuid)
    if not runs:
        raise UnknownRun(f"workflow {workflow.number} has no jobs yet", hint="joblens run FILE")
    newest = whole_run(store.find_run(runs[-1].uuid), store, session.settings)
    refuse_command(newest, store)
    options = replace(with_offer(newest.options, given), cwd=os.getcwd())
    warn_of_other_broker(session, options)
    notify = given["notify"] or options.notify
    is_elsewhere = (newest.options.cwd, newest.options.output_dir) != (options.cwd, options.output_dir)
    is_new = newest.status is not RunStatus.CREATED or is_elsewhere
    loaded = loaded_run(replace(newest, raised=()) if is_new else newest)
    options = hide_secrets(loaded, options)
    request = RunRequest(
        loaded=loaded,
        options=options,
        workflow=workflow if is_new else None,
        resumed=newest,
        detach=given["detach"],
    )
    carry_out(session, request, given, known=workflow, notify=notify)
