"""`joblens diff`: differences between two runs or two jobs."""

import click

from joblens.cli.context import Session
from joblens.cli.options.common import complete_run, shared_options
from joblens.cli.options.groups import GroupedCommand
from joblens.model.errors import InputError
from joblens.model.jobs.job import Record


@click.command("diff", cls=GroupedCommand)
@click.argument("before", metavar="RUN|JOB", shell_complete=complete_run)
@click.argument("after", metavar="[RUN|JOB]", required=False, shell_complete=complete_run)
@click.option("--all", "shows_all", is_flag=True, help="Also show unchanged jobs and numbers.")
@shared_options
def command(session: Session, before: str, after: str | None, shows_all: bool) -> None:
    """Compare two runs or two jobs, and show how the differences changed their numbers.

    With one run: compare it with the run before it. With one job: with the job that it repeats, or the
    previous one of the same name. Jobs of runs are matched by name, largest changes first. For two jobs,
    everything recorded is compared; numbers are judged by the variation of earlier runs.
    """
    from joblens.app.reports.diffs import diff_runs, run_before
    from joblens.app.runs.lookup import find_job_or_run

    store = session.current_store
    one = find_job_or_run(store, before, session.note)
    if after is None:
        if isinstance(one, Record):
            from joblens.app.reports.diffs import job_before

            _show_jobs(session, job_before(store, one), one, shows_all=shows_all)
            return
        found = diff_runs(store, run_before(store, one), one)
    else:
        other = find_job_or_run(store, after, session.note)
        if isinstance(one, Record) and isinstance(other, Record):
            _show_jobs(session, one, other, shows_all=shows_all)
            return
        if isinstance(one, Record) or isinstance(other, Record):
            raise InputError(
                f"'{before}' and '{after}': cannot compare a job with a run",
                hint="write job:3 for a job, workflow:3 for the newest run of a workflow",
            )
        found = diff_runs(store, one, other)
    from joblens.views.runs.diff import render_run_diff, run_diff_form

    if session.json:
        session.write_json(run_diff_form(found))
    else:
        width = session.width if session.is_terminal else None
        session.write_lines(render_run_diff(found, width=width, paint=session.palette, shows_all=shows_all))


def _show_jobs(session: Session, before: Record, after: Record, *, shows_all: bool) -> None:
    from joblens.app.reports.diffs import diff_jobs
    from joblens.views.runs.diff import job_diff_form, render_job_diff

    found = diff_jobs(session.current_store, before, after)
    if session.json:
        session.write_json(job_diff_form(found))
        return
    width = session.width if session.is_terminal else None
    session.write_lines(render_job_diff(found, width=width, paint=session.palette, shows_all=shows_all))
