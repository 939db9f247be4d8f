"""`joblens health`: does the queue work?"""

import sys

import click

from joblens.cli.context import Session
from joblens.cli.options.common import shared_options


@click.command("health")
@click.option("--broker", metavar="URL", help="Look at this broker instead of the one configured.")
@shared_options
def command(session: Session, broker: str | None) -> None:
    """Whether store, broker and workers are there, and what waits in each queue. Exit code 1 when something
    is down."""
    from joblens.app.queue.health import queue_health
    from joblens.views.runs.tasks import render_health

    session.override("queue.broker", broker)
    session.warn_of_broker(broker)
    health = queue_health(session.settings)
    if session.json:
        session.write_json(health)
    else:
        session.write_lines(render_health(health, width=session.width, paint=session.palette))
    sys.exit(0 if health["status"] == "healthy" else 1)
