"""`joblens delete`: remove jobs with everything that belongs to them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from msgspec import structs

from joblens.cli.context import Session
from joblens.cli.options.common import complete_job, shared_options
from joblens.cli.options.filters import is_narrowed, job_filters, with_run_found
from joblens.cli.options.groups import FILTER_GROUPS, GroupedCommand
from joblens.model.errors import InputError
from joblens.model.history import HistoryQuery
from joblens.model.values.units import counted

if TYPE_CHECKING:
    from joblens.app.runs.deletion import Obstacle
    from joblens.model.jobs.job import Record

_SHOWN = 10


@click.command("delete", cls=GroupedCommand, groups=FILTER_GROUPS)
@click.argument("idents", metavar="[ID...]", nargs=-1, shell_complete=complete_job)
@job_filters
@click.option("-n", "--dry-run", is_flag=True, help="Show what would be deleted.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation; required in scripts.")
@shared_options
def command(session: Session, idents: tuple[str, ...], query: HistoryQuery, dry_run: bool, yes: bool) -> int:
    """Delete jobs: their records, samples, output and lines in files beside the store. This cannot be undone.

    Select jobs by ID, or with filters. Jobs that have not ended, and jobs of runs that can be
    resumed, are refused by ID and skipped by filter.
    """
    from joblens.app.queue.watch import find_tasks
    from joblens.app.runs.deletion import refuse, select

    if bool(idents) == is_narrowed(query):
        raise InputError(
            "give job IDs or filters, not both" if idents else "give the IDs of jobs, or filters",
            hint="joblens delete 12 13, or joblens delete --status failed --until 30d",
        )
    store = session.current_store
    if idents:
        found = [record for ident in dict.fromkeys(idents) for record in find_tasks(store, ident)]
        records = list({record.job.uuid: record for record in found}.values())
    else:
        records = list(store.records(with_run_found(store, query)))
    selection = select(store, records, _owner(session), session.settings)
    if idents:
        refuse(selection.obstacles)
    return delete_selected(session, selection.jobs, selection.obstacles, dry_run=dry_run, yes=yes)


def delete_selected(
    session: Session,
    jobs: "Sequence[Record]",
    obstacles: "Sequence[Obstacle]",
    *,
    dry_run: bool,
    yes: bool,
) -> int:
    """Shows, asks and deletes. Returns the exit code: 1 when the user said no."""
    if jobs and not dry_run and not yes:
        if not session.is_interactive:
            raise InputError(
                f"{counted(len(jobs), 'job')} would be deleted, and there is no terminal to ask",
                hint="add --yes to delete, or --dry-run to see which",
            )
        session.note("\n".join(_lines(jobs)))
        if not click.confirm(f"Delete {counted(len(jobs), 'job')}? This cannot be undone.", err=True):
            return 1
    if not dry_run:
        _delete(session, jobs)
    if session.json:
        session.write_json(_form(jobs, obstacles, dry_run=dry_run))
        return 0
    if dry_run:
        session.write_lines(_lines(jobs))
    nothing = "No jobs to delete." if obstacles else "No jobs match."
    verb = "would be deleted" if dry_run else "deleted"
    session.write(f"{counted(len(jobs), 'job')} {verb}\n" if jobs else f"{nothing}\n")
    if obstacles:
        first, number = obstacles[0], obstacles[0].record.number
        session.write(f"{counted(len(obstacles), 'job')} skipped: job {number} {first.reason}\n")
    return 0


def _owner(session: Session) -> str | None:
    """Returns the user whose jobs may be deleted; None: the server decides by the token."""
    from joblens.app.wiring.agent_context import current_user

    return None if session.server_url is not None else current_user()


def _delete(session: Session, jobs: "Sequence[Record]") -> None:
    remote = session.remote
    if remote is not None:
        remote.delete(record.job.uuid for record in jobs)
        return
    from joblens.app.runs.deletion import Mirrors, delete
    from joblens.app.wiring.agent_context import current_user
    from joblens.app.wiring.drivers import SystemClock

    mirrors = Mirrors.of(session.settings)
    now_us = SystemClock().now_us()
    delete(session.queue_store, jobs, mirrors, by=current_user(), at_us=now_us, warn=session.warn)


def _lines(jobs: "Sequence[Record]") -> list[str]:
    from joblens.model.values.units import format_instant

    lines = []
    for record in jobs[:_SHOWN]:
        name = record.job.name or " ".join(record.job.argv)[:40]
        created = format_instant(record.job.created_at_us)[:19]
        lines.append(f"{record.number:>6}  {record.status.value:9}  {created}  {name}")
    return [*lines, f"  … and {len(jobs) - _SHOWN:,} more"] if len(jobs) > _SHOWN else lines


def _form(jobs: "Sequence[Record]", obstacles: "Sequence[Obstacle]", *, dry_run: bool) -> dict[str, object]:
    return {
        "dry_run": dry_run,
        "deleted": [{"job_uuid": one.job.uuid, "number": one.number} for one in jobs],
        "left_out": [
            {"job_uuid": one.record.job.uuid, "number": one.record.number, "reason": one.reason}
            for one in obstacles
        ],
    }


@click.command("delete", cls=GroupedCommand)
@click.argument("idents", metavar="WORKFLOW...", nargs=-1, required=True)
@click.option("-n", "--dry-run", is_flag=True, help="Show what would be deleted.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation; required in scripts.")
@shared_options
def delete_workflows(session: Session, idents: tuple[str, ...], dry_run: bool, yes: bool) -> int:
    """Delete workflows with all their runs and jobs, like 'joblens delete'. This cannot be undone."""
    from joblens.app.runs.deletion import refuse, refuse_resumable, select

    store = session.current_store
    workflows = [store.find_workflow(ident) for ident in dict.fromkeys(idents)]
    jobs: list[Record] = []
    for workflow in workflows:
        refuse_resumable(store, workflow, _owner(session), session.settings)
        for run in store.runs(workflow.uuid):
            jobs += store.records(structs.replace(HistoryQuery(), run_uuid=run.uuid))
    selection = select(store, jobs, _owner(session), session.settings)
    refuse(selection.obstacles)
    code = delete_selected(session, selection.jobs, (), dry_run=dry_run, yes=yes or not selection.jobs)
    if code == 0 and not dry_run:
        if session.remote is not None:
            session.remote.delete((), [workflow.uuid for workflow in workflows])
            return code
        for workflow in workflows:
            session.queue_store.delete_workflow(workflow.uuid)
    return code
