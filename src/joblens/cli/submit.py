"""`joblens submit`: run a command in the background."""

import sys
from typing import Any

import click

from joblens.cli.context import Session
from joblens.cli.job_options import job_options
from joblens.cli.job_request import request_from
from joblens.cli.options import shared_options
from joblens.model.ids import short


@click.command(context_settings={"allow_interspersed_args": False})
@job_options
@click.option("--wait", is_flag=True, help="Wait for it; the exit code is then the job's.")
@shared_options
def command(session: Session, /, **given: Any) -> None:
    """Run COMMAND in the background, measured as with run. It goes on when the terminal is closed.

    Prints the job's id; see it with list, top, logs, metrics, wait and cancel.
    """
    from joblens.app.jobs import prepare
    from joblens.app.submitting import submit

    prepared = prepare(request_from(given, background=True), session.settings)
    record = submit(prepared, session.settings, session.options.config, session.warn)
    uuid = record.job.uuid
    if given["wait"]:
        from joblens.app.queries import wait_for_end

        record = wait_for_end(session.store_to_fill, uuid, None, session.care)
    if session.json:
        from joblens.analysis.history_form import to_history_record

        session.write_json(to_history_record(record))
    elif session.is_terminal:
        session.write(f"Submitted {short(uuid)} (job {record.number}): {record.job.name}\n")
    else:
        session.write(f"{uuid}\n")
    if given["wait"] and record.outcome is not None:
        sys.exit(125 if record.outcome.exit_code is None else record.outcome.exit_code)
