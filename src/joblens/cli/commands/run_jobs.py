"""`joblens run-jobs`: runs the jobs of a stored workflow."""

from typing import Any

import click

from joblens.cli.context import Session
from joblens.cli.options.common import complete_run, shared_options
from joblens.cli.options.groups import DRIVE_GROUPS, GroupedCommand
from joblens.cli.options.run import offer_options, take_queue_options, warn_of_other_broker, with_offer


@click.command("run-jobs", cls=GroupedCommand, groups=DRIVE_GROUPS)
@click.argument("ident", metavar="WORKFLOW", shell_complete=complete_run)
@offer_options
@shared_options
def command(session: Session, /, ident: str, **values: Any) -> None:
    """Run all jobs of a stored WORKFLOW (number or name) in a new run. 'workflows create-from-spec' stores
    one."""
    from msgspec.structs import replace

    from joblens.app.driving.requests import workflow_request
    from joblens.app.jobs.requests import current_dir
    from joblens.cli.commands.run_spec import carry_out

    session.own_runs()
    take_queue_options(session, values)
    workflow = session.store.find_workflow(ident)
    request = workflow_request(
        session.store,
        workflow,
        session.settings,
        lambda options: replace(with_offer(options, values), cwd=current_dir()),
    )
    warn_of_other_broker(session, request.options)
    request = replace(request, detach=values["detach"])
    carry_out(session, request, values, known=workflow, notify=values["notify"] or request.options.notify)
