"""`joblens cancel`: end a running job, or all jobs of a run."""

from typing import TYPE_CHECKING, Any

import click

from joblens.cli.context import Session
from joblens.cli.options import shared_options
from joblens.cli.run_arguments import jobs_or_runs_argument
from joblens.model.ids import short

if TYPE_CHECKING:
    from joblens.model.job import Record
    from joblens.model.run import Run

_PATIENCE_S = 60.0


@click.command()
@jobs_or_runs_argument
@click.option("--no-wait", is_flag=True, help="Ask, and do not wait until it has ended.")
@shared_options
def command(session: Session, /, idents: tuple[str, ...], no_wait: bool) -> None:
    """Ask jobs, or the jobs of runs, to end: TERM, then KILL after their grace time. Nothing of them is left
    afterwards. A run that was ended starts nothing more; resume goes on with it."""
    from joblens.app.owning import current_user
    from joblens.app.run_control import ask_run_to_end
    from joblens.app.runs import find_job_or_run
    from joblens.app.submitting import ask_to_cancel
    from joblens.model.job import Record

    store = session.store
    found = [find_job_or_run(store, ident) for ident in idents]
    for one in found:
        if not isinstance(one, Record):
            ask_run_to_end(one, store, session.settings, current_user())
        elif not one.status.is_final:
            ask_to_cancel(one, store, session.settings, current_user())
    # Only now: a job that waits for a supervisor must not be started first.
    session.care()
    ended = [one if no_wait else _awaited(session, one) for one in found]
    if session.json:
        session.write_json([_form(one) for one in ended])
        return
    for one in ended:
        session.write(_line(one))


def _awaited(session: Session, one: "Record | Run") -> "Record | Run":
    from joblens.app.queries import wait_for_end
    from joblens.app.run_control import wait_for_run
    from joblens.model.job import Record

    if not isinstance(one, Record):
        patience_s = session.settings.limits.grace + _PATIENCE_S
        return wait_for_run(session.store, one.uuid, session.settings, patience_s, session.care)
    if one.status.is_final:
        return one
    return wait_for_end(session.store, one.job.uuid, one.job.grace_s + _PATIENCE_S, session.care)


def _form(one: "Record | Run") -> dict[str, Any]:
    from joblens.model.job import Record

    if isinstance(one, Record):
        return {"job_uuid": one.job.uuid, "status": one.status}
    return {"run_uuid": one.uuid, "status": one.status}


def _line(one: "Record | Run") -> str:
    from joblens.analysis.workflow_rows import run_label
    from joblens.model.job import Record

    if isinstance(one, Record):
        return f"{short(one.job.uuid)}  {one.status}  {one.job.name}\n"
    return f"{run_label(one)}  {one.status}\n"
