"""`joblens workflow-status`: status of tasks that were submitted together."""

import click

from joblens.cli.context import Session
from joblens.cli.options.common import complete_job, shared_options
from joblens.cli.options.groups import GroupedCommand


@click.command("workflow-status", cls=GroupedCommand)
@click.argument("idents", metavar="ID...", nargs=-1, required=True, shell_complete=complete_job)
@shared_options
def command(session: Session, idents: tuple[str, ...]) -> None:
    """Show the status of tasks submitted together. ID is a workflow ID (wf-…) or a task ID; several are
    combined.

    'Completed' counts tasks that succeeded; failed tasks are counted separately.
    """
    from joblens.app.queue.watch import find_tasks
    from joblens.cli.commands.status import show_workflow

    store = session.current_store
    uuids = [record.job.uuid for ident in idents for record in find_tasks(store, ident)]
    show_workflow(session, uuids)
