"""`joblens logs`: prints the output of a job."""

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO

import click

from joblens.cli.context import Session
from joblens.cli.options.common import count_from, job_argument, shared_options
from joblens.cli.options.groups import GroupedCommand
from joblens.model.errors import InputError
from joblens.model.values.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from joblens.model.jobs.job import Outcome, Record


@click.command("logs", cls=GroupedCommand)
@job_argument
@click.option("-f", "--follow", is_flag=True, help="Follow the output until the job ends.")
@click.option("--stderr", is_flag=True, help="Print only standard error.")
@click.option("-n", "--tail", type=count_from(0), metavar="N", help="Start with the last N lines.")
@shared_options
def command(session: Session, ident: str, follow: bool, stderr: bool, tail: int | None) -> None:
    """Print a job's standard output, byte for byte. If the job failed or printed nothing there, its
    standard error follows, on standard error."""
    if session.json:
        raise InputError("logs are raw bytes and have no JSON form", hint="omit --json")
    from joblens.app.jobs.logs import follow_log, read_log
    from joblens.app.jobs.queries import find

    store = session.current_store
    record = find(store, ident, session.note)
    stream = "stderr" if stderr else "stdout"
    chunks = (
        follow_log(store, record.job.uuid, stream, tail, session.recover_orphans, session.open_output)
        if follow
        else read_log(record, stream, tail, session.open_output)
    )
    printed = _copy(chunks, sys.stdout.buffer)
    if tail == 0:
        return
    record = find(store, record.job.uuid)
    if not stderr and (not printed or _has_failed(record)):
        with suppress(InputError):  # not requested, so a missing one is no error
            printed = (
                _copy(read_log(record, "stderr", tail, session.open_output), sys.stderr.buffer) or printed
            )
    folder = _recipe_dir(record)
    if folder is not None:
        session.note(f"joblens: a recipe's job writes its logs to {folder}/logs, its events to {folder}")
    elif not printed and record.outcome is not None:
        session.note(f"joblens: {_nothing(record.outcome, stream)}")


def _recipe_dir(record: "Record") -> str | None:
    if record.job.tool != "recipe":  # what follows imports much
        return None
    from joblens.app.recipes.job_directory import job_dir_of

    return job_dir_of(record)


def _copy(chunks: "Iterable[bytes]", to: BinaryIO) -> bool:
    """Returns whether there was any output."""
    printed = False
    for chunk in chunks:
        to.write(chunk)
        to.flush()
        printed = True
    return printed


def _has_failed(record: "Record") -> bool:
    return record.status.is_failure


def _nothing(outcome: "Outcome", stream: str) -> str:
    if stream == "stderr" and outcome.stdout_bytes:
        return f"nothing on stderr; stdout has {format_bytes(outcome.stdout_bytes)}: omit --stderr"
    is_known = outcome.stdout_bytes is not None and outcome.stderr_bytes is not None
    return "the job printed nothing" if is_known else f"nothing on {stream}"
