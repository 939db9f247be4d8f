"""`joblens snapshot`: progress of a recipe's job, from its folder."""

import sys
import time
from typing import TYPE_CHECKING

import click

from joblens.cli.context import Session
from joblens.cli.options.common import shared_options
from joblens.cli.options.groups import GroupedCommand
from joblens.model.errors import InputError
from joblens.model.values.units import parse_duration

if TYPE_CHECKING:
    from joblens.app.recipes.snapshots import LiveSnapshot
    from joblens.model.recipes.snapshot import JobSnapshot

_FASTEST_S = 0.1
_INDENTED_OPERATIONS = 10_000  # a larger document is written in pieces, without indentation


@click.command("snapshot", cls=GroupedCommand)
@click.argument("job_dir", metavar="JOB_DIR", type=click.Path())
@click.option("--human-readable", is_flag=True, help="Print text instead of JSON.")
@click.option("--watch", is_flag=True, help="Refresh until the job ends.")
@click.option(
    "--interval", metavar="TIME", default="1s", show_default=True, help="Refresh interval of --watch."
)
@click.option("--list", "list_jobs", is_flag=True, help="List the jobs in JOB_DIR.")
@shared_options
def command(
    session: Session, job_dir: str, human_readable: bool, watch: bool, interval: str, list_jobs: bool
) -> None:
    """Show the progress of a recipe's job from the event log in its directory, written by joblens or
    DataJuicer. Distinguishes running, finished, failed, stopped and killed jobs.

    On a server (--server), JOB_DIR is the ID of a recipe's job.

    With --watch on a terminal, redraws in place (q quits); on a pipe or with --json, prints one document
    per line.
    """
    interval_s = parse_duration(interval)
    if interval_s < _FASTEST_S:
        raise InputError(f"--interval {interval} is too short", hint=f"{_FASTEST_S}s or more")
    if list_jobs and watch:
        raise InputError("--list and --watch cannot be combined", hint="give the directory of one job")
    if session.server_url is not None:
        if list_jobs or human_readable:
            session.refuse_server("snapshot --list and --human-readable")
        _from_server(session, job_dir, interval_s if watch else None)
        return
    if list_jobs:
        _list(session, job_dir)
        return
    from joblens.app.recipes.snapshots import LiveSnapshot

    live = LiveSnapshot(job_dir)
    is_for_people = (human_readable or (watch and session.is_terminal)) and not session.json
    if not watch:
        snapshot = live.refresh()
        _print_text(session, snapshot) if is_for_people else _print_json(session, live, snapshot)
    elif is_for_people and session.is_terminal:
        _draw(session, live, interval_s)
    else:
        _stream(session, live, interval_s, is_for_people=is_for_people)


def _from_server(session: Session, ident: str, interval_s: float | None) -> None:
    """Writes the document of a job once, or until it ends."""
    from joblens.app.jobs.queries import find

    remote = session.remote
    assert remote is not None
    uuid = find(session.store, ident, session.note).job.uuid
    while True:
        is_over = interval_s is None or session.store.find(uuid).status.is_final
        session.write_json_line(remote.server.call("GET", f"/jobs/{uuid}/snapshot", dict))
        if is_over:
            return
        time.sleep(interval_s or 0.0)


def _list(session: Session, base_dir: str) -> None:
    from joblens.app.recipes.job_tools import JobUtils

    jobs = JobUtils(base_dir).list_jobs()
    if session.json:
        session.write_json(jobs)
        return
    from joblens.views.recipes.snapshot import render_job_list

    session.write_lines(render_job_list(jobs, width=session.width, paint=session.palette))


def _print_text(session: Session, snapshot: "JobSnapshot") -> None:
    from joblens.views.recipes.snapshot import render_snapshot

    session.write_lines(render_snapshot(snapshot, width=session.table_width, paint=session.palette))


def _print_json(session: Session, live: "LiveSnapshot", snapshot: "JobSnapshot") -> None:
    if session.is_terminal and snapshot.total_operations <= _INDENTED_OPERATIONS:
        session.write_json(live.json_dict(snapshot))
    else:
        _write_pieces(live, snapshot)


def _write_pieces(live: "LiveSnapshot", snapshot: "JobSnapshot") -> None:
    sys.stdout.flush()
    for piece in live.json_pieces(snapshot):
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()


def _stream(session: Session, live: "LiveSnapshot", interval_s: float, *, is_for_people: bool) -> None:
    from joblens.views.recipes.snapshot import progress_line

    before = ""
    while True:
        snapshot = live.refresh()
        if not is_for_people:
            _write_pieces(live, snapshot)
        elif live.is_over(snapshot):
            _print_text(session, snapshot)
        elif (line := progress_line(snapshot, snapshot.total_duration or 0.0)) != before:
            session.write_lines([line])
            session.flush()
            before = line
        if live.is_over(snapshot):
            return
        time.sleep(interval_s)


def _draw(session: Session, live: "LiveSnapshot", interval_s: float) -> None:
    from joblens.cli.terminal import Screen
    from joblens.views.recipes.snapshot import render_snapshot

    snapshot = live.refresh()
    with Screen() as screen:
        while not live.is_over(snapshot):
            lines = render_snapshot(snapshot, width=session.width, paint=session.palette)
            screen.draw([*lines, "", session.palette.paint("q quits", "dim")])
            if screen.key(interval_s) in ("q", "Q", "\x1b"):
                return
            snapshot = live.refresh()
    _print_text(session, snapshot)
