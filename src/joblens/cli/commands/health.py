"""`joblens health`: does the queue work?"""

import sys

import click

from joblens.cli.context import Session
from joblens.cli.options.common import shared_options
from joblens.cli.options.groups import GroupedCommand


@click.command("health", cls=GroupedCommand)
@click.option("--broker", metavar="URL", help="Broker to check. Default: the setting queue.broker.")
@shared_options
def command(session: Session, broker: str | None) -> None:
    """Check the store, the broker and the workers, and show the length of each queue. Exit code 1:
    something is down."""
    from joblens.app.queue.health import queue_health
    from joblens.model.errors import InputError
    from joblens.views.runs.tasks import render_health

    if session.remote is not None:
        if broker is not None:
            raise InputError("--broker cannot be used on a server", hint="the server checks its own broker")
        health = session.remote.queue_health()
    else:
        session.override("queue.broker", broker)
        session.warn_of_broker(broker)
        health = queue_health(session.settings)
    if session.json:
        session.write_json(health)
    else:
        session.write_lines(render_health(health, width=session.width, paint=session.palette))
    sys.exit(0 if health["status"] == "healthy" else 1)
