"""`joblens status`: how a job on a queue stands, and what came of it."""

import sys
from collections.abc import Callable
from typing import Any

import click

from joblens.cli.arguments import job_argument
from joblens.cli.context import Session
from joblens.cli.options import shared_options


@click.command("status")
@job_argument
@click.option("-m", "--monitor", is_flag=True, help="Follow it until it has ended.")
@click.option(
    "-i", "--interval", default="2", metavar="TIME", show_default=True, help="With -m: between looks."
)
@shared_options
def command(session: Session, ident: str, monitor: bool, interval: str) -> None:
    """How a job stands, in the words of task queues: PENDING, STARTED, SUCCESS, FAILURE, REVOKED (cancelled)
    or RETRY (its worker was lost, and it waits for another); with its result once it has ended."""
    from joblens.app.queries import find
    from joblens.app.queue_watching import task_status
    from joblens.app.requests import seconds_of
    from joblens.model.errors import InputError
    from joblens.views.tasks import render_status

    interval_s = seconds_of("--interval", interval)
    if not interval_s:
        raise InputError(f"--interval {interval}: must be more than 0")
    record = find(session.current_store, ident, session.note)
    status = task_status(session.queue_store, record)
    if monitor and not status["ready"]:
        status = follow_status(session, record.job.uuid, interval_s, _teller(session))
        clear_line()
    if session.json:
        write = session.write_json_line if monitor else session.write_json
        write(status)
        return
    session.write_lines(render_status(status, paint=session.palette))


def follow_status(
    session: Session,
    uuid: str,
    interval_s: float,
    tell: Callable[[dict[str, Any]], None],
    timeout_s: float | None = None,
) -> dict[str, Any]:
    """-> the status at its end, or when the time is up."""
    import time

    from joblens.app.queries import records_until_final
    from joblens.app.queue_watching import task_status

    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    told_at = -interval_s
    for record in records_until_final(session.store, uuid, session.care_for_queue):
        is_late = deadline is not None and time.monotonic() >= deadline
        if record.status.is_final or is_late:
            break
        if time.monotonic() - told_at >= interval_s:
            tell(task_status(session.queue_store, record))
            told_at = time.monotonic()
    return task_status(session.queue_store, record)


def _teller(session: Session) -> Callable[[dict[str, Any]], None]:
    if session.json:
        return session.write_json_line
    return terminal_line(session) if sys.stdout.isatty() else (lambda status: _line(session, status))


def _line(session: Session, status: dict[str, Any]) -> None:
    from joblens.views.tasks import live_line

    session.write(f"{live_line(status)}\n")
    session.flush()


def terminal_line(session: Session) -> Callable[[dict[str, Any]], None]:
    """One line on the terminal that is written over; gone when the next thing is written there."""
    from joblens.views.style import fit
    from joblens.views.tasks import live_line

    def tell(status: dict[str, Any]) -> None:
        sys.stderr.write(f"\r\x1b[K{fit(live_line(status), session.width - 1)}\r")
        sys.stderr.flush()

    return tell


def clear_line() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
