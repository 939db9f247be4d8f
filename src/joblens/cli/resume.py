"""`joblens resume`: go on with a run that was stopped or killed."""

from typing import Any

import click
from msgspec.structs import replace

from joblens.cli.context import Session
from joblens.cli.options import shared_options
from joblens.cli.run_arguments import run_argument
from joblens.cli.run_options import offer_options, with_offer


@click.command()
@run_argument
@offer_options
@shared_options
def command(session: Session, /, ident: str, **given: Any) -> None:
    """Go on with RUN where it stands: jobs whose success was recorded do not run again, jobs that still run
    are waited for, the others run.

    The exit code is that of run FILE: 0 when all jobs have succeeded, 1 when some have not."""
    from joblens.analysis.workflow_rows import run_label
    from joblens.app.kept_specs import whole_run
    from joblens.app.run_checks import prepare_place, refuse_driven
    from joblens.app.specs import plan_of_run
    from joblens.app.workflow_runs import check_plan
    from joblens.cli.run_spec import detach, drive_in_front
    from joblens.model.run import RunStatus

    run = session.store.find_run(ident)
    if run.status is RunStatus.COMPLETED and not session.json:
        session.write(f"Run {run_label(run)} is completed: there is nothing left to do\n")
        return
    refuse_driven(run, session.settings)
    run = whole_run(run, session.store, session.settings)
    run = replace(run, options=with_offer(run.options, given))
    plan = plan_of_run(run)
    left = _left(session, run)
    check_plan(plan, run.options, left)
    prepare_place(run.options, detach=given["detach"])
    if given["detach"]:
        detach(session, run)
    else:
        drive_in_front(session, run, plan, quiet=given["quiet"])


def _left(session: Session, run: Any) -> tuple[int, ...]:
    from joblens.app.run_state import state_of_run

    return tuple(job.index for job in state_of_run(session.store, run).jobs if job.is_left)
