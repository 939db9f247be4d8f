"""`joblens logs`: what a job printed."""

import sys
from typing import TYPE_CHECKING

import click

from joblens.cli.arguments import job_argument
from joblens.cli.context import Session
from joblens.cli.options import shared_options
from joblens.model.errors import InputError
from joblens.model.units import format_bytes

if TYPE_CHECKING:
    from joblens.model.job import Outcome


@click.command("logs")
@job_argument
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes until the job ends.")
@click.option("--stderr", is_flag=True, help="What it printed to standard error.")
@click.option("-n", "--tail", type=click.IntRange(min=0), metavar="N", help="Begin with the last N lines.")
@shared_options
def command(session: Session, ident: str, follow: bool, stderr: bool, tail: int | None) -> None:
    """What a job printed to standard output, byte for byte."""
    if session.json:
        raise InputError("logs are the job's own bytes and have no JSON form", hint="leave out --json")
    from joblens.app.job_logs import follow_log, read_log
    from joblens.app.queries import find

    store = session.current_store
    record = find(store, ident)
    stream = "stderr" if stderr else "stdout"
    chunks = (
        follow_log(store, record.job.uuid, stream, tail, session.care)
        if follow
        else read_log(record, stream, tail)
    )
    printed = False
    for chunk in chunks:
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
        printed = True
    outcome = find(store, record.job.uuid).outcome
    if not printed and tail != 0 and outcome is not None:
        session.note(f"joblens: {_nothing(outcome, stream)}")


def _nothing(outcome: "Outcome", stream: str) -> str:
    other, option = ("stderr", "add --stderr") if stream == "stdout" else ("stdout", "leave out --stderr")
    there = getattr(outcome, f"{other}_bytes")
    if there:
        return f"nothing on {stream}; {format_bytes(there)} on {other}: {option}"
    return f"nothing on {stream}" if there is None else "it printed nothing"
