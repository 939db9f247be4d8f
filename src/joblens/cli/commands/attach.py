"""`joblens attach`: measure something that already runs."""

import os
import sys
from typing import TYPE_CHECKING

import click

from joblens.cli.context import Session
from joblens.cli.options.common import shared_options
from joblens.cli.options.groups import GroupedCommand

if TYPE_CHECKING:
    from joblens.cli.ui.live_line import LiveLine


@click.command("attach", cls=GroupedCommand)
@click.argument("target", metavar="PID|CONTAINER|CGROUP")
@click.option(
    "--name",
    default="",
    metavar="TEXT",
    help="Job name. Default: the name of the process, container or cgroup.",
)
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Tag: a word or key=value. Repeatable.")
@click.option("--interval", metavar="TIME", help="Sampling interval, at least 50ms. Default: 1s.")
@click.option(
    "--probes", metavar="LIST", help="Optional probes: all, none, a list of names, +memory, -network."
)
@click.option("--timeout", metavar="TIME", help="Stop measuring after TIME; the process keeps running.")
@click.option(
    "--container-engine",
    type=click.Choice(("docker", "podman")),
    help="Container engine. Default: the first that has the container.",
)
@click.option("--container-socket", metavar="PATH", help="Socket of the container engine.")
@click.option("-q", "--quiet", is_flag=True, help="Show no live line and no summary.")
@shared_options
def command(
    session: Session,
    target: str,
    *,
    name: str,
    tags: tuple[str, ...],
    interval: str | None,
    probes: str | None,
    timeout: str | None,
    container_engine: str | None,
    container_socket: str | None,
    quiet: bool,
) -> int:
    """Measure a running process and its descendants, a container or a cgroup until it ends or you press
    Ctrl-C. joblens never stops it. The exit code is that of the process if known, else 0."""
    from joblens.app.jobs.attach import attach_in_foreground
    from joblens.app.jobs.requests import Request, seconds_of
    from joblens.model.jobs.job import Requirements

    request = Request(
        argv=("attach",),
        name=name,
        tags=tags,
        interval_s=seconds_of("--interval", interval),
        probes=probes,
        requirements=Requirements(timeout_s=seconds_of("--timeout", timeout)),
    )
    shows = not quiet and os.isatty(2)
    color = shows and session.error_color

    def make_display(shown: str) -> "LiveLine":
        from joblens.cli.ui.live_line import LiveLine
        from joblens.views.jobs.live_line import render_live_line

        return LiveLine(lambda samples: render_live_line(shown, samples, session.width, color))

    session.own_jobs()
    record = attach_in_foreground(
        target,
        request,
        session.settings,
        engine=container_engine or "",
        socket=container_socket or "",
        make_display=make_display if shows else None,
    )
    if session.json:
        from joblens.analysis.formats.history import to_history_record

        session.write_json(to_history_record(record))
    elif not quiet:
        from joblens.views.jobs.summary import render_summary

        sys.stderr.write(render_summary(record, color=color, width=session.width))
    return (record.outcome.exit_code if record.outcome is not None else None) or 0
