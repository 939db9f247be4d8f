"""`joblens show` and `job-details`: one job."""

import click

from joblens.cli.context import Session
from joblens.cli.options.common import job_argument, shared_options


@click.command("show")
@job_argument
@click.option("--threads", is_flag=True, help="Only its threads: CPU time, waits, moves between CPUs.")
@click.option("--network", is_flag=True, help="Only its network: totals, interfaces, with whom it talked.")
@click.option("--memory", is_flag=True, help="Only its memory: parts, NUMA, processes, growth.")
@click.option("--gpu", is_flag=True, help="Only its GPUs: the devices and what it made of them.")
@click.option(
    "--operators", is_flag=True, help="Only its operators, of a recipe: rows, time, CPU, memory, I/O."
)
@click.option(
    "--provenance", is_flag=True, help="Only what it ran in: code, programs, versions, machine, files."
)
@shared_options
def command(session: Session, /, ident: str, **asked: bool) -> None:
    """Everything about one job: findings, usage with its sources, curves, how it was run.

    ID is the UUID or the start of it, the job's number, or the id you gave it; a job's
    name stands for its newest."""
    from joblens.app.jobs.queries import find, samples
    from joblens.app.queue.task_results import place_of_waiting
    from joblens.app.runs.state import raised_before

    store = session.current_store
    record = find(store, ident, session.note)
    details = store.details(record.job.uuid)
    if asked["memory"]:
        from joblens.app.jobs.live import look_now

        details = details.updated(look_now(store, record))
    if details.operators is None and record.job.tool == "recipe":
        from joblens.app.recipes.snapshots import operators_from_folder

        details = details.updated(operators_from_folder(record))
    if record.attempt is not None and record.attempt.placement is not None:
        from joblens.app.reports.seff import look_account

        details = look_account(store, record, details)
    digest = "" if record.attempt is None else record.attempt.provenance
    provenance = store.provenance(digest) if digest else None
    waits_at = place_of_waiting(store, record)
    raised = raised_before(store, record)
    if session.json:
        from msgspec import to_builtins

        from joblens.app.jobs.queries import whole_record

        more = {"details": to_builtins(details), "provenance": to_builtins(provenance)}
        if waits_at is not None:
            more["waits_at"] = to_builtins(waits_at)
        if raised:
            more["raised"] = raised
        session.write_json({**whole_record(record), **more})
        return
    from joblens.app.wiring.drivers import SystemClock
    from joblens.views.jobs.show import render_parts, render_show

    taken = samples(store, record.job.uuid)
    now_us, width, paint = SystemClock().now_us(), session.width, session.palette
    parts = [part for part, is_asked in asked.items() if is_asked]
    if parts == ["operators"]:
        width = session.table_width
    session.write_lines(
        render_parts(
            record, taken, details, parts, now_us=now_us, width=width, paint=paint, provenance=provenance
        )
        if parts
        else render_show(
            record,
            taken,
            now_us=now_us,
            width=width,
            paint=paint,
            details=details,
            provenance=provenance,
            waits=waits_at.in_words() if waits_at is not None else "",
            raised=raised,
        )
    )


@click.command("job-details")
@job_argument
@shared_options
def job_details(session: Session, ident: str) -> None:
    """The main fields of one job."""
    from joblens.app.jobs.queries import find

    record = find(session.current_store, ident, session.note)
    if session.json:
        from joblens.analysis.formats.history import to_history_record

        session.write_json(to_history_record(record))
        return
    from joblens.views.jobs.history import render_job_details

    session.write_lines(render_job_details(record))
