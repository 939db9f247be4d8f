"""`joblens supervisor`: runs background jobs in this process, for a service manager."""

import click

from joblens.cli.context import Session
from joblens.cli.options.common import shared_options
from joblens.cli.options.groups import GroupedCommand


@click.command(cls=GroupedCommand)
@click.option("--stay", is_flag=True, help="Keep running when idle.")
@click.option(
    "--own-group",
    is_flag=True,
    help="With --stay: create job cgroups inside this process's own delegated cgroup (systemd Delegate=yes).",
)
@shared_options
def command(session: Session, stay: bool, own_group: bool) -> None:
    """Run background jobs in this process.

    'joblens submit' starts a supervisor if there is none; use this command to run one under a service
    manager. There is one per user and store: with --stay, a second one waits for the first to end.
    """
    from joblens.app.jobs import supervisor as supervising
    from joblens.model.errors import InputError, SupervisorError

    if stay:
        supervising.stay(session.settings, has_own_group=own_group)
        return
    if own_group:
        raise InputError("--own-group needs --stay")
    if not supervising.supervise(session.settings, idle_s=session.settings.supervisor.idle):
        raise SupervisorError(
            "another supervisor is already running for this store",
            hint="use --stay to wait for it to end",
        )
