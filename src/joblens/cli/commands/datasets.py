"""`joblens datasets`: directories that jobs of a workflow fill and read."""

from typing import TYPE_CHECKING

import click

from joblens.cli.commands.other_names import CommandGroup
from joblens.cli.context import Session
from joblens.cli.options.common import run_argument, shared_options

if TYPE_CHECKING:
    from joblens.app.runs.datasets import DatasetStanding
    from joblens.model.runs.run import Run


@click.group("datasets", cls=CommandGroup)
def command() -> None:
    """Show directories that jobs of a workflow write and read."""


@command.command("list")
@run_argument
@click.option(
    "--status",
    type=click.Choice(["pending", "finalizing", "finalized", "failed"]),
    help="Only datasets with this status.",
)
@shared_options
def list_(session: Session, ident: str, status: str | None) -> None:
    """List the datasets of RUN: status, number of files, size and hash."""
    from joblens.app.runs.datasets import dataset_form

    _, datasets = _datasets(session, ident)
    rows = [dataset_form(one) for one in datasets if status in (None, one.status)]
    if session.json:
        session.write_json(rows)
        return
    if not rows:
        session.write(
            f"No datasets are {status}.\n" if status and datasets else "The workflow has no datasets.\n"
        )
        return
    from joblens.views.runs.workflows import render_datasets

    session.write_lines(render_datasets(rows, width=session.table_width, paint=session.palette))


@command.command("show")
@run_argument
@click.argument("name")
@shared_options
def show(session: Session, ident: str, name: str) -> None:
    """Show everything about the dataset NAME of RUN."""
    from joblens.app.runs.datasets import dataset_detail_form, find_dataset

    run, datasets = _datasets(session, ident)
    row = dataset_detail_form(find_dataset(datasets, name, run))
    if session.json:
        session.write_json(row)
        return
    from joblens.views.runs.workflows import render_dataset

    session.write_lines(render_dataset(row, session.palette))


@command.command("finalize")
@run_argument
@click.option("--dataset", "name", metavar="NAME", help="Only this dataset.")
@click.option(
    "--dry-run", is_flag=True, help="List the datasets that would be finalized, without finalizing them."
)
@shared_options
def finalize(session: Session, ident: str, name: str | None, dry_run: bool) -> None:
    """Count and hash the datasets of RUN whose producers have all succeeded, and record the result.

    A run does this itself, and 'joblens resume' completes it for a killed run. Exit code 1: a dataset
    cannot be finalized, or the one named still waits for its producers.
    """
    from joblens.app.runs.datasets import FINALIZED, dataset_form, finalize_by_hand, find_dataset

    run, datasets = _datasets(session, ident)
    selected = [find_dataset(datasets, name, run)] if name is not None else datasets
    if dry_run:
        due = [one for one in selected if one.is_due]
        if session.json:
            session.write_json([dataset_form(one) for one in due])
            return
        for one in due:
            session.write(f"{one.name} would be finalized: {one.path}\n")
        if not due:
            session.write("Nothing to finalize.\n")
        return
    finalized = finalize_by_hand(session.store, run, session.settings, selected)
    failed = [one for one in finalized if one.error or (name is not None and one.status != FINALIZED)]
    if session.json:
        session.write_json([dataset_form(one) for one in finalized])
    else:
        _write_finalized(
            session, [one for one in finalized if one.is_due or one.status == FINALIZED], selected, failed
        )
    if failed:
        raise SystemExit(1)


def _write_finalized(
    session: Session,
    finalized: "list[DatasetStanding]",
    selected: "list[DatasetStanding]",
    failed: "list[DatasetStanding]",
) -> None:
    from joblens.app.runs.datasets import dataset_form
    from joblens.views.runs.workflows import render_datasets

    was_due = {one.name for one in selected if one.is_due}
    rows = [dataset_form(one) for one in finalized if one.name in was_due]
    if rows:
        session.write_lines(render_datasets(rows, width=session.table_width, paint=session.palette))
    elif not failed:
        session.write("Nothing to finalize.\n")
    for one in failed:
        if not one.error:
            unfinished = len(one.producers) - one.producers_done
            session.note(
                f"joblens: dataset '{one.name}' waits for {unfinished} of its {len(one.producers)} producers"
            )


def _datasets(session: Session, ident: str) -> "tuple[Run, list[DatasetStanding]]":
    from joblens.app.runs.datasets import datasets_of_run
    from joblens.app.runs.lookup import find_named_run

    run = find_named_run(session.store, ident, session.note)
    return run, datasets_of_run(session.store, run)
