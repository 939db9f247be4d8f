"""`joblens submit`: run a command, a workflow file or a tool's script in the background, or on a queue."""

from typing import Any

import click

from joblens.cli.commands.run_on_engine import check_options
from joblens.cli.commands.submitted import collecting, told
from joblens.cli.commands.tool_command import ToolOrSpecCommand, with_tool
from joblens.cli.context import Session
from joblens.cli.options.cluster import CELERY, CLUSTERS, LOCAL
from joblens.cli.options.common import shared_options
from joblens.cli.options.job import click_options, job_options
from joblens.cli.options.job_request import request_from
from joblens.cli.options.run import take_queue_options
from joblens.cli.options.table import QUEUE_OPTIONS, SPEC_OPTIONS
from joblens.model.errors import InputError


@click.command(cls=ToolOrSpecCommand, context_settings={"allow_interspersed_args": False})
@job_options
@click_options(SPEC_OPTIONS)
@click_options(QUEUE_OPTIONS)
@shared_options
def command(session: Session, /, **given: Any) -> None:
    """Run COMMAND, the jobs of a workflow FILE, or TOOL SCRIPT in the background, measured as with run. It
    keeps running when the terminal is closed.

    A tool's script, and with a broker everything, goes to workers of a queue (joblens worker); where there is
    neither, one is started here for as long as there is work.

    Prints the job's or the run's id; see it with status, list, top, logs, metrics, wait and cancel.
    """
    given = with_tool(given)
    if given["wait_timeout"] is not None and not given["wait"]:
        raise InputError("-t says how long to wait: it goes with --wait")
    take_queue_options(session, given)
    if given["spec"] is not None:
        from joblens.cli.commands.run_spec import submit_spec

        submit_spec(session, given)
        return
    engine = _engine(session, given)
    check_options(engine, given)
    if given["tool_name"] is not None:
        from joblens.cli.commands.submit_queue import submit_tool

        submit_tool(session, given)
    elif engine != LOCAL:
        from joblens.cli.commands.submit_queue import submit_command

        submit_command(session, given)
    else:
        _submit_here(session, given)


def _engine(session: Session, given: dict[str, Any]) -> str:
    """The one that was asked for, else the one that the other options and the configuration mean."""
    engine: str | None = given["engine"]
    if given["tool_name"] is not None:
        return engine if engine in CLUSTERS else CELERY
    if engine is not None:
        return engine
    needs_workers = any(given[name] for name in ("queue", "retry_lost", "label"))
    return CELERY if needs_workers or session.settings.queue.broker else LOCAL


def _submit_here(session: Session, given: dict[str, Any]) -> None:
    """To the supervisor of this user."""
    from joblens.app.jobs.preparation import prepare
    from joblens.app.jobs.submitting import submit

    prepared = prepare(request_from(given, background=True), session.settings)
    warnings, warn = collecting(session)
    record = submit(prepared, session.settings, session.options.config, warn)
    told(session, record, given, session.care, warnings)
