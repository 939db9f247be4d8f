"""`joblens seff`: efficiency of a Slurm job."""

import click

from joblens.cli.context import Session
from joblens.cli.options.common import shared_options
from joblens.cli.options.groups import GroupedCommand


@click.command("seff", cls=GroupedCommand)
@click.argument("idents", metavar="JOBID...", nargs=-1, required=True)
@shared_options
def command(session: Session, idents: tuple[str, ...]) -> None:
    """Show how efficiently jobs used their Slurm allocation, and what to request next time.

    JOBID is a Slurm ID: 123, 123_4 for one task of an array, or 123 for all its tasks; or a joblens ID.
    Shows joblens' numbers with Slurm's beside them if joblens measured the job, else Slurm's alone.
    """
    from joblens.analysis.slurm.efficiency import efficiency_form
    from joblens.app.reports.seff import Seff

    seff = Seff(session.store_if_exists, session.note)
    found = [seff.efficiencies(ident) for ident in idents]
    if session.json:
        session.write_json([efficiency_form(one) for jobs in found for one in jobs])
        return
    from joblens.views.jobs.seff import render_seff, render_seff_table

    for number, jobs in enumerate(found):
        width, paint = session.width, session.palette
        if number:
            session.write("\n")
        if len(jobs) == 1:
            session.write_lines(render_seff(jobs[0], width=width, paint=paint))
        else:
            session.write_lines(render_seff_table(jobs, width=session.table_width, paint=paint))
