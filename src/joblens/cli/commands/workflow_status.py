"""`joblens workflow-status`: how tasks that belong together stand."""

import click

from joblens.cli.context import Session
from joblens.cli.options.common import complete_job, shared_options


@click.command("workflow-status")
@click.argument("idents", metavar="ID...", nargs=-1, required=True, shell_complete=complete_job)
@shared_options
def command(session: Session, idents: tuple[str, ...]) -> None:
    """How the tasks of a workflow stand: ID is what submit-workflow printed, or the ids of single tasks.

    Completed are those that succeeded; a task that failed is told as failed."""
    from joblens.app.queue.watch import find_tasks
    from joblens.cli.commands.status import show_workflow

    store = session.current_store
    uuids = [record.job.uuid for ident in idents for record in find_tasks(store, ident)]
    show_workflow(session, uuids)
