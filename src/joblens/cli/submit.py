"""`joblens submit`: run a command, a workflow file or a tool's script in the background, or on a queue."""

from typing import Any

import click

from joblens.cli.context import Session
from joblens.cli.job_options import click_options, job_options
from joblens.cli.job_request import refuse_spec_options, request_from
from joblens.cli.option_table import QUEUE_OPTIONS, SPEC_OPTIONS
from joblens.cli.options import shared_options
from joblens.cli.submitted import told
from joblens.cli.tool_command import ToolOrSpecCommand, with_tool
from joblens.model.errors import InputError


@click.command(cls=ToolOrSpecCommand, context_settings={"allow_interspersed_args": False})
@job_options
@click_options(SPEC_OPTIONS)
@click_options(QUEUE_OPTIONS)
@shared_options
def command(session: Session, /, **given: Any) -> None:
    """Run COMMAND, the jobs of a workflow FILE, or TOOL SCRIPT in the background, measured as with run. It
    goes on when the terminal is closed.

    A tool's script, and with a broker everything, goes to workers of a queue (joblens worker); where there is
    neither, one is started here for as long as there is work.

    Prints the job's or the run's id; see it with status, list, top, logs, metrics, wait and cancel.
    """
    given = with_tool(given)
    if given["wait_timeout"] is not None and not given["wait"]:
        raise InputError("-t says how long to wait: it goes with --wait")
    session.override("queue.broker", given["broker"])
    session.override("queue.name", given["queue"])
    session.override("queue.retry_lost", given["retry_lost"])
    session.warn_of_broker(given["broker"])
    if given["spec"] is not None:
        from joblens.cli.run_spec import submit_spec

        submit_spec(session, given)
        return
    engine = given["engine"]
    if engine not in (None, "local"):
        from joblens.cli.run_on_engine import check_options

        check_options(given)
    else:
        refuse_spec_options({**given, "engine": None, "label": ()})
    if given["tool_name"] is not None:
        from joblens.cli.submit_queue import submit_tool

        submit_tool(session, given)
    elif engine != "local" and (
        engine
        or session.settings.queue.broker
        or any(given[name] for name in ("queue", "retry_lost", "label"))
    ):
        from joblens.cli.submit_queue import submit_command

        submit_command(session, given)
    else:
        _submit_here(session, given)


def _submit_here(session: Session, given: dict[str, Any]) -> None:
    """To the supervisor of this user."""
    from joblens.app.jobs import prepare
    from joblens.app.submitting import submit

    prepared = prepare(request_from(given, background=True), session.settings)
    record = submit(prepared, session.settings, session.options.config, session.warn)
    told(session, record, given, session.care)
