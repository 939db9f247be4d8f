"""`joblens supervisor`: look after background jobs in this process, for a service manager."""

import click

from joblens.cli.context import Session
from joblens.cli.options.common import shared_options


@click.command()
@click.option("--stay", is_flag=True, help="Do not end when idle.")
@click.option(
    "--own-group",
    is_flag=True,
    help="Make job groups in the delegated group it is alone in (with --stay).",
)
@shared_options
def command(session: Session, stay: bool, own_group: bool) -> None:
    """Look after background jobs in this process.

    submit starts a supervisor by itself when there is none; this is for those who want a service manager
    to keep one running. One works for each user and store: with --stay a second one waits for the end of
    the first."""
    from joblens.app.jobs import supervisor as supervising
    from joblens.model.errors import InputError, SupervisorError

    if stay:
        supervising.stay(session.settings, has_own_group=own_group)
        return
    if own_group:
        raise InputError("--own-group goes with --stay only")
    if not supervising.supervise(session.settings, idle_s=session.settings.supervisor.idle):
        raise SupervisorError(
            "another supervisor is at work for this store already",
            hint="with --stay this one waits for its end",
        )
