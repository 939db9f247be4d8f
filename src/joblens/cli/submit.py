"""`joblens submit`: run a command in the background."""

import sys
from typing import Any

import click

from joblens.cli.context import Session
from joblens.cli.job_options import click_options, job_options
from joblens.cli.job_request import request_from
from joblens.cli.option_table import SPEC_OPTIONS
from joblens.cli.options import shared_options
from joblens.cli.run import refuse_spec_options
from joblens.cli.spec_command import SpecCommand, with_spec
from joblens.model.ids import short


@click.command(cls=SpecCommand, context_settings={"allow_interspersed_args": False})
@job_options
@click_options(SPEC_OPTIONS)
@click.option("--wait", is_flag=True, help="Wait for it; the exit code is then the job's.")
@shared_options
def command(session: Session, /, **given: Any) -> None:
    """Run COMMAND, or the jobs of a workflow FILE, in the background, measured as with run. It goes on when
    the terminal is closed.

    Prints the job's or the run's id; see it with list, top, logs, metrics, wait and cancel.
    """
    given = with_spec(given)
    if given["spec"] is not None:
        from joblens.cli.run_spec import submit_spec

        submit_spec(session, given)
        return
    refuse_spec_options(given)
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
