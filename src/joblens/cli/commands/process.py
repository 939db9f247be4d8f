"""`joblens process`: runs a recipe."""

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from joblens.cli.context import Session
from joblens.cli.options.common import complete_file, count_from, shared_options
from joblens.cli.options.groups import GroupedCommand

if TYPE_CHECKING:
    from joblens.app.recipes.execution import RecipeOutcome
    from joblens.app.recipes.process import PlannedRecipe


@click.command(cls=GroupedCommand)
@click.argument("recipe", metavar="[RECIPE]", required=False, shell_complete=complete_file)
@click.option("--job-id", metavar="ID", help="Job ID. Resumes the job if it already exists.")
@click.option(
    "--resume",
    metavar="ID|DIR",
    help="Continue an existing job, by ID or directory. Needs no RECIPE.",
)
@click.option("--start-over", is_flag=True, help="Discard an existing job's results and start again.")
@click.option("--work-dir", metavar="DIR", help="Directory in which the job's directory is created.")
@click.option("--executor", type=click.Choice(["local", "ray"]), help="Where to run the work.")
@click.option("--np", type=count_from(1), metavar="N", help="Maximum number of workers.")
@click.option("--strict", is_flag=True, help="Fail at the first bad row instead of rejecting it.")
@click.option(
    "--max-rejects",
    metavar="N|P%",
    help="Fail if more than N rows, or P% of all rows, are rejected. Default: no limit.",
)
@click.option("--dry-run", is_flag=True, help="Check everything and show what would be done.")
@click.option("-q", "--quiet", is_flag=True, help="Print only errors.")
@shared_options
def command(session: Session, /, recipe: str | None, *, dry_run: bool, quiet: bool, **values: Any) -> None:
    """Run the operators of RECIPE on its dataset in parallel partitions, with an event log and
    checkpoints.

    The exit code is 0 if the job completed, even if rows were rejected (they are reported by reason); 1
    if it failed, partitions are missing or --max-rejects was exceeded; 2 if the recipe is invalid; 128+N
    after signal N (Ctrl-C: 130). Use --resume to continue a failed or interrupted job.
    """
    from joblens.app.recipes.process import ProcessOptions, exit_code_of, plan_recipe
    from joblens.data.base.process_setup import import_arrow

    with suppress(ImportError):  # the module that needs it reports it
        import_arrow()
    session.own_runs()
    planned = plan_recipe(recipe, ProcessOptions(**values), session.connection)
    if not quiet:
        for warning in planned.warnings:
            session.warn(warning)
    if dry_run:
        _show_plan(session, planned)
        return
    ended = _run_recipe(session, planned, quiet=quiet)
    if ended.was_complete and not quiet and not session.json:
        session.write(f"{planned.checked.recipe.name}: job {ended.plan.job_id} is already complete\n")
    _show_end(session, ended, quiet=quiet)
    sys.exit(exit_code_of(ended))


def _run_recipe(session: Session, planned: "PlannedRecipe", *, quiet: bool) -> "RecipeOutcome":
    from joblens.app.recipes.process import run_recipe
    from joblens.cli.ui.recipes import recipe_view

    session.own_jobs()
    if quiet:
        return run_recipe(planned, session.settings, session.connection)
    name = planned.checked.recipe.name
    descriptor = 2 if session.json else 1  # standard output gets only the document

    def note_start() -> None:
        if not session.json:
            verb = "resumes" if planned.job.is_resumed else "starts"
            session.write(f"{name}: job {planned.job.plan.job_id} {verb}\n")
            session.flush()

    view = recipe_view(name, descriptor=descriptor, color=session.color)
    return run_recipe(planned, session.settings, session.connection, view, note_start)


def _show_plan(session: Session, planned: "PlannedRecipe") -> None:
    from joblens.views.recipes.process import plan_document, render_recipe_plan

    job, kinds = planned.job, planned.checked.kinds
    if session.json:
        session.write_json(plan_document(job.plan, kinds, is_resumed=job.is_resumed))
        return
    from joblens.app.recipes.snapshots import create_snapshot

    before = create_snapshot(job.plan.job_dir) if job.is_resumed else None
    session.write_lines(
        render_recipe_plan(
            job.plan,
            kinds,
            is_resumed=job.is_resumed,
            width=session.table_width,
            paint=session.palette,
            before=before,
        )
    )


def _show_end(session: Session, ended: "RecipeOutcome", *, quiet: bool) -> None:
    from joblens.analysis.recipes.usage import operator_table
    from joblens.app.recipes.process import failure_reason
    from joblens.model.recipes.snapshot import ProcessingStatus
    from joblens.views.recipes.process import end_document, rejects_warning, render_recipe_end

    plan, record, snapshot = ended.plan, ended.record, ended.snapshot
    table = operator_table(snapshot, plan, 0)
    why = failure_reason(snapshot, record)
    if session.json:
        session.write_json(
            end_document(plan, record, snapshot, table, why, ended.export_files, can_resume=ended.can_resume)
        )
    elif not quiet:
        session.write_lines(
            render_recipe_end(
                plan,
                record,
                snapshot,
                table,
                why=why,
                width=session.table_width,
                paint=session.palette,
                export_files=ended.export_files,
                can_resume=ended.can_resume,
            )
        )
    elif snapshot.overall_status is not ProcessingStatus.COMPLETED:
        session.warn(f"job {plan.job_id}: {snapshot.overall_status}" + (f": {why}" if why else ""))
    elif snapshot.rejected_rows:
        session.warn(rejects_warning(plan, snapshot))
