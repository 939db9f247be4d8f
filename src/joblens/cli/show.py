"""`joblens show` and `job-details`: one job."""

import click

from joblens.cli.arguments import job_argument
from joblens.cli.context import Session
from joblens.cli.options import shared_options


@click.command("show")
@job_argument
@shared_options
def command(session: Session, ident: str) -> None:
    """Everything about one job: findings, usage with its sources, curves, how it was run.

    ID is the UUID or the start of it, the job's number, or the id you gave it; a job's
    name stands for its newest."""
    from joblens.app.queries import find, samples

    store = session.current_store
    record = find(store, ident, session.note)
    if session.json:
        from joblens.app.queries import whole_record

        session.write_json(whole_record(record))
        return
    from joblens.app.drivers import SystemClock
    from joblens.views.show import render_show

    lines = render_show(
        record,
        samples(store, record.job.uuid),
        now_us=SystemClock().now_us(),
        width=session.width,
        paint=session.palette,
    )
    session.write_lines(lines)


@click.command("job-details")
@job_argument
@shared_options
def job_details(session: Session, ident: str) -> None:
    """The main fields of one job."""
    from joblens.app.queries import find

    record = find(session.current_store, ident, session.note)
    if session.json:
        from joblens.analysis.history_form import to_history_record

        session.write_json(to_history_record(record))
        return
    from joblens.views.details import render_job_details

    session.write_lines(render_job_details(record))
