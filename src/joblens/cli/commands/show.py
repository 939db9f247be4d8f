"""`joblens show` and `job-details`: one job."""

import click

from joblens.cli.context import Session
from joblens.cli.options.common import job_argument, shared_options
from joblens.cli.options.groups import GroupedCommand


@click.command("show", cls=GroupedCommand)
@job_argument
@click.option("--threads", is_flag=True, help="Show only threads: CPU time, waits, CPU migrations.")
@click.option("--network", is_flag=True, help="Show only the network: totals, interfaces, peers.")
@click.option("--memory", is_flag=True, help="Show only memory: breakdown, NUMA, processes, growth.")
@click.option("--gpu", is_flag=True, help="Show only GPUs: devices and their utilization.")
@click.option(
    "--operators", is_flag=True, help="Show only a recipe's operators: rows, time, CPU, memory, I/O."
)
@click.option(
    "--provenance", is_flag=True, help="Show only provenance: code, programs, versions, machine, files."
)
@shared_options
def command(session: Session, /, ident: str, **flags: bool) -> None:
    """Show everything about one job: findings, usage and its sources, curves, how it was run.

    ID is a UUID or a prefix of it, a job number, or the ID you gave it; a job name selects its newest
    job.
    """
    from joblens.app.jobs.queries import find, provenance_of
    from joblens.app.queue.task_results import allocation_of_waiting
    from joblens.app.runs.state import raised_before

    store = session.current_store
    record = find(store, ident, session.note)
    details = store.details(record.job.uuid)
    if flags["memory"]:
        from joblens.app.jobs.live import read_now

        details = details.updated(read_now(store, record))
    if details.operators is None and record.job.tool == "recipe":
        from joblens.app.recipes.snapshots import operators_from_folder

        details = details.updated(operators_from_folder(record))
    if record.attempt is not None and record.attempt.placement is not None:
        from joblens.app.reports.seff import slurm_account

        details = slurm_account(store, record, details)
    provenance = provenance_of(store, record)
    waits_at = allocation_of_waiting(store, record)
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
    from joblens.views.runs.cluster_waits import describe_wait

    series = [sample for _, sample in store.samples(record.job.uuid)]
    now_us, width, paint = SystemClock().now_us(), session.width, session.palette
    parts = [part for part, is_set in flags.items() if is_set]
    if parts == ["operators"]:
        width = session.table_width
    session.write_lines(
        render_parts(
            record, series, details, parts, now_us=now_us, width=width, paint=paint, provenance=provenance
        )
        if parts
        else render_show(
            record,
            series,
            now_us=now_us,
            width=width,
            paint=paint,
            details=details,
            provenance=provenance,
            waits=describe_wait(waits_at) if waits_at is not None else "",
            raised=raised,
        )
    )


@click.command("job-details", cls=GroupedCommand)
@job_argument
@shared_options
def job_details(session: Session, ident: str) -> None:
    """Show the main fields of one job."""
    from joblens.app.jobs.queries import find

    record = find(session.current_store, ident, session.note)
    if session.json:
        from joblens.analysis.formats.history import to_history_record

        session.write_json(to_history_record(record))
        return
    from joblens.views.jobs.history import render_job_details

    session.write_lines(render_job_details(record))
