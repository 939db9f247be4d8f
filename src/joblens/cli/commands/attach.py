"""`joblens attach`: measure something that runs already."""

import os
import sys
from typing import TYPE_CHECKING

import click

from joblens.cli.context import Session
from joblens.cli.options.common import shared_options

if TYPE_CHECKING:
    from joblens.model.jobs.sample import Sample


@click.command("attach")
@click.argument("target", metavar="PID|CONTAINER|CGROUP")
@click.option("--name", default="", metavar="TEXT", help="Name in tables. Default: what it is called itself.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Tag to find it by (repeatable).")
@click.option("--interval", metavar="TIME", help="Between samples; at least 50ms. Default: 1s.")
@click.option("--probes", metavar="LIST", help="What else to measure: all, none, names, +memory, -network.")
@click.option("--timeout", metavar="TIME", help="Stop measuring after TIME; the process keeps running.")
@click.option(
    "--container-engine",
    type=click.Choice(("docker", "podman")),
    help="Which engine has the container. Default: the first that knows it.",
)
@click.option("--container-socket", metavar="PATH", help="Where the engine listens.")
@click.option("-q", "--quiet", is_flag=True, help="No live line and no summary.")
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
    """Measure a process with all below it, a container or a control group that runs already, from now on,
    until it ends or you press Ctrl-C. It is never stopped: only the measuring ends. The exit code is its own
    where that can be known, else 0."""
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
    color = shows and not session.options.no_color and not os.environ.get("NO_COLOR")

    def render_live(shown: str, samples: "list[Sample]") -> str:
        from joblens.views.jobs.live_line import render_live_line

        return render_live_line(shown, samples, session.width, color)

    session.own_jobs()
    record = attach_in_foreground(
        target,
        request,
        session.settings,
        engine=container_engine or "",
        socket=container_socket or "",
        render_live=render_live if shows else None,
    )
    if session.json:
        from joblens.analysis.formats.history import to_history_record

        session.write_json(to_history_record(record))
    elif not quiet:
        from joblens.views.jobs.summary import render_summary

        sys.stderr.write(render_summary(record, color=color, width=session.width))
    return (record.outcome.exit_code if record.outcome is not None else None) or 0
