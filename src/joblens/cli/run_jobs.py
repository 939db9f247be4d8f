"""`joblens run-jobs`: run the jobs of a workflow that was created."""

import os
from typing import Any

import click
from msgspec.structs import replace

from joblens.cli.context import Session
from joblens.cli.options import shared_options
from joblens.cli.run_arguments import complete_run
from joblens.cli.run_options import offer_options, with_offer


@click.command("run-jobs")
@click.argument("ident", metavar="WORKFLOW", shell_complete=complete_run)
@offer_options
@shared_options
def command(session: Session, /, ident: str, **given: Any) -> None:
    """Run all jobs of WORKFLOW, a number or a name, in a new run. workflows create-from-spec makes one."""
    from joblens.app.drivers import open_store_directly
    from joblens.app.kept_specs import hide_secrets, whole_run
    from joblens.app.run_checks import prepare_place, refuse_command, refuse_driven
    from joblens.app.specs import loaded_run
    from joblens.app.workflow_runs import check_plan, create_run
    from joblens.cli.run_spec import check_engine, detach, drive_in_front
    from joblens.model.errors import UnknownRun
    from joblens.model.run import RunStatus

    store = session.store
    workflow = store.find_workflow(ident)
    runs = store.runs(workflow.uuid)
    if not runs:
        raise UnknownRun(f"workflow {workflow.number} has no jobs yet", hint="joblens run FILE")
    newest = whole_run(store.find_run(runs[-1].uuid), store, session.settings)
    refuse_command(newest, store)
    refuse_driven(newest, session.settings)
    options = replace(with_offer(newest.options, given), cwd=os.getcwd())
    loaded = loaded_run(newest)
    options = hide_secrets(loaded, options)
    check_plan(loaded.plan, options)
    check_engine(session, loaded.plan, options)
    prepare_place(options, detach=given["detach"])
    run = replace(newest, options=options)
    is_other_place = (newest.options.cwd, newest.options.output_dir) != (options.cwd, options.output_dir)
    if newest.status is not RunStatus.CREATED or is_other_place:
        direct = open_store_directly(session.settings, session.warn)
        run = create_run(direct, workflow, loaded, options, session.settings)
        direct.close()
    if given["detach"]:
        detach(session, run)
    else:
        drive_in_front(session, run, loaded.plan, quiet=given["quiet"])
