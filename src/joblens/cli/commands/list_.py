"""`joblens list`: lists queued and running jobs."""

import click

from joblens.cli.context import Session
from joblens.cli.options.common import shared_options
from joblens.cli.options.groups import GroupedCommand


@click.command("list", cls=GroupedCommand)
@shared_options
def command(session: Session) -> None:
    """List queued and running jobs, oldest first."""
    records = session.current_store.running()
    if session.json:
        from joblens.analysis.formats.history import to_history_record

        session.write_json([to_history_record(record) for record in records])
        return
    if not records:
        session.write("Nothing is running. 'joblens history' shows what ran.\n")
        return
    from joblens.app.wiring.drivers import SystemClock
    from joblens.views.jobs.running import render_running

    now_us = SystemClock().now_us()
    session.write_lines(render_running(records, now_us=now_us, width=session.width, paint=session.palette))
