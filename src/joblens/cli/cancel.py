"""`joblens cancel`: end a running job."""

import click

from joblens.cli.context import Session
from joblens.cli.options import shared_options
from joblens.model.ids import short

_PATIENCE_S = 60.0


@click.command()
@click.argument("idents", nargs=-1, required=True, metavar="ID...")
@click.option("--no-wait", is_flag=True, help="Ask, and do not wait until it has ended.")
@shared_options
def command(session: Session, /, idents: tuple[str, ...], no_wait: bool) -> None:
    """Ask jobs to end: TERM, then KILL after their grace time. Nothing of them is left afterwards."""
    from joblens.app.owning import current_user
    from joblens.app.queries import find, wait_for_end
    from joblens.app.submitting import ask_to_cancel

    store = session.store
    records = [find(store, ident) for ident in idents]
    for record in records:
        if not record.status.is_final:
            ask_to_cancel(record, store, session.settings, current_user())
    # Only now: a job that waits for a supervisor must not be started first.
    session.care()
    ended = [
        record
        if no_wait or record.status.is_final
        else wait_for_end(store, record.job.uuid, record.job.grace_s + _PATIENCE_S, session.care)
        for record in records
    ]
    if session.json:
        session.write_json([{"job_uuid": record.job.uuid, "status": record.status} for record in ended])
        return
    for record in ended:
        session.write(f"{short(record.job.uuid)}  {record.status}  {record.job.name}\n")
