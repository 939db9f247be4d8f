"""`joblens jobs reset-status`: resets jobs of a run; and other names of commands about jobs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from joblens.cli.commands.other_names import CommandGroup
from joblens.cli.context import Session
from joblens.cli.options.common import complete_job_or_run, shared_options
from joblens.model.errors import InputError
from joblens.model.values.units import listed

if TYPE_CHECKING:
    from joblens.model.runs.run import Run

_NAMES_SHOWN = 10


@click.group("jobs", cls=CommandGroup)
def command() -> None:
    """Work with jobs of runs. 'jobs list RUN' is 'results RUN', 'jobs get ID' is 'show ID'."""


@command.command("reset-status")
@click.argument("idents", metavar="JOB...", nargs=-1, required=True, shell_complete=complete_job_or_run)
@click.option(
    "--run", "ident", metavar="RUN", help="Select JOB in this run, by name, glob, label:… or regex:…."
)
@click.option("-n", "--dry-run", is_flag=True, help="Show what would be reset without changing anything.")
@click.option("--no-prompts", is_flag=True, help="Do not ask for confirmation.")
@shared_options
def reset_status(
    session: Session, idents: tuple[str, ...], ident: str | None, dry_run: bool, no_prompts: bool
) -> None:
    """Reset jobs of one run and their dependents; 'joblens resume' then runs them in the same run.

    JOB is a job ID from 'joblens results'; with --run also the name of a job that has not run yet.
    """
    run, indexes = _by_ids(session, idents) if ident is None else _by_names(session, ident, idents)
    reset(session, run, indexes, dry_run=dry_run, no_prompts=no_prompts)


def _by_ids(session: Session, idents: tuple[str, ...]) -> "tuple[Run, list[int]]":
    from joblens.app.jobs.queries import find

    store = session.current_store
    records = [find(store, ident, session.note, is_to_change=True) for ident in idents]
    links = [record.job.run for record in records]
    for ident, link in zip(idents, links, strict=True):
        if link is None or link.index < 0:
            raise InputError(f"job {ident} belongs to no workflow", hint=f"joblens rerun {ident}")
    runs = {link.run_uuid for link in links if link is not None}
    if len(runs) > 1:
        raise InputError("these jobs belong to several runs", hint="reset the jobs of each run separately")
    return store.find_run(runs.pop()), [link.index for link in links if link is not None]


def _by_names(session: Session, ident: str, words: tuple[str, ...]) -> "tuple[Run, list[int]]":
    from joblens.analysis.runs.status import run_label
    from joblens.app.runs.lookup import find_named_run
    from joblens.app.workflows.loader import plan_of_run
    from joblens.model.errors import PlanError
    from joblens.plan.workflows.selection import find_jobs

    run = find_named_run(session.current_store, ident, session.note)
    found = find_jobs(plan_of_run(run), "reset-status", words)
    if found.problems:
        raise PlanError("\n  ".join(found.problems), hint=f"joblens results {run_label(run)} lists the jobs")
    return run, list(found.indexes)


def reset(session: Session, run: "Run", indexes: Sequence[int], *, dry_run: bool, no_prompts: bool) -> None:
    """Resets the jobs and reports which."""
    from contextlib import nullcontext

    from joblens.analysis.runs.status import run_label
    from joblens.app.driving.recovery import hold_run, plan_reset, reset_jobs
    from joblens.app.runs.control import refuse_command
    from joblens.app.wiring.agent_context import current_user

    refuse_command(run, session.store)
    with nullcontext() if dry_run else hold_run(run, session.store, session.settings):
        planned = plan_reset(session.store, run, indexes)
        if planned.jobs and not dry_run:
            if planned.completed:
                _warn(session, planned.completed, no_prompts=no_prompts)
            store = session.connection.to_write().direct()
            reset_jobs(store, run, planned.jobs, (), current_user())
    if session.json:
        form = {"reset": planned.names, "dependants": planned.dependents, "completed": planned.completed}
        session.write_json({"run": run_label(run), "run_uuid": run.uuid, "dry_run": dry_run, **form})
        return
    if not planned.jobs:
        session.write(f"No job of run {run_label(run)} needs a reset\n")
        return
    session.write(f"{'Would reset' if dry_run else 'Reset'}: {_shown(planned.names)}\n")
    if planned.dependents:
        session.write(f"with their dependents: {_shown(planned.dependents)}\n")
    if not dry_run:
        session.write(f"joblens resume {run_label(run)} runs them\n")


def _warn(session: Session, done: Sequence[str], *, no_prompts: bool) -> None:
    session.warn(f"jobs that succeeded run again, and their results are replaced: {_shown(done)}")
    if session.is_interactive and not no_prompts and not click.confirm("Reset them?", err=True):
        session.note("Nothing changed")
        raise click.Abort


def _shown(names: Sequence[str]) -> str:
    from joblens.views.text.style import clean

    return listed(names, _NAMES_SHOWN, clean)
