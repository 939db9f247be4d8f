"""`joblens results` and `results list`: lists the jobs of a run, their usage, and why some did not
succeed."""

from typing import TYPE_CHECKING

import click

from joblens.cli.context import Session
from joblens.cli.options.common import complete_run, run_number_option, shared_options
from joblens.cli.options.groups import GroupedCommand
from joblens.model.runs.run import JobState

if TYPE_CHECKING:
    from joblens.analysis.runs.table import ResultRow
    from joblens.model.runs.run import Run
    from joblens.ports.store import Store

_SORTS = ("job", "name", "status", "duration", "cpu", "memory")


@click.command("results", cls=GroupedCommand)
@click.argument("arguments", metavar="[list] [RUN]", nargs=-1, shell_complete=complete_run)
@run_number_option
@click.option("--failed", "only_failed", is_flag=True, help="Show only jobs that did not succeed.")
@click.option(
    "-s",
    "--status",
    "states",
    multiple=True,
    type=click.Choice([state.label for state in JobState]),
    metavar="STATE",
    help="Show only jobs with this status: ready, running, failed, …. Repeatable.",
)
@click.option(
    "--sort",
    type=click.Choice(_SORTS),
    default="job",
    show_default=True,
    help="Sort key: 'job' is the order in the workflow; numbers sort largest first.",
)
@click.option("--reverse", is_flag=True, help="Reverse the order.")
@shared_options
def command(
    session: Session,
    arguments: tuple[str, ...],
    run_number: int | None,
    only_failed: bool,
    states: tuple[str, ...],
    sort: str,
    reverse: bool,
) -> None:
    """List the jobs of a run: state, return code, duration, CPU, memory, attempts, and why jobs failed.

    RUN is a workflow's number or name (its newest run), 3.2 for run 2 of workflow 3, or a run's UUID.
    Default: the newest run of all. 'results list [RUN]' is the same.
    """
    from joblens.app.runs.tables import ResultSort, result_rows, sorted_rows

    store = session.current_store
    run = _run_of(session, store, arguments, run_number)
    rows = sorted_rows(result_rows(store, run), ResultSort(sort), reverse=reverse)
    if only_failed:
        rows = [row for row in rows if row.has_failed]
    if states:
        rows = [row for row in rows if row.state.label in states]
    if session.json:
        _write_json(session, run, rows)
    else:
        _write_text(session, rows, _none(states, only_failed=only_failed))
        _write_document_and_table(session, run)


def write_results(session: Session, run: "Run") -> None:
    """Writes all jobs in the order of the plan."""
    from joblens.app.runs.tables import result_rows

    rows = result_rows(session.current_store, run)
    if session.json:
        _write_json(session, run, rows)
        return
    _write_text(session, rows, _none((), only_failed=False))
    _write_document_and_table(session, run)


def _run_of(session: Session, store: "Store", arguments: tuple[str, ...], run_number: int | None) -> "Run":
    """`list` may come first, as in other tools. Alone it means the newest run, unless a workflow has this
    name."""
    from joblens.app.runs.lookup import find_named_run, newest_run
    from joblens.model.errors import UnknownRun, UnknownWorkflow

    idents = arguments[1:] if len(arguments) > 1 and arguments[0] == "list" else arguments
    if len(idents) > 1:
        raise click.UsageError(f"expected one RUN, not {len(idents)}: {' '.join(idents)}")
    try:
        return find_named_run(store, idents[0], session.note, run_number) if idents else newest_run(store)
    except (UnknownRun, UnknownWorkflow):
        if idents != ("list",):
            raise
    return newest_run(store)


def _write_json(session: Session, run: "Run", rows: "list[ResultRow]") -> None:
    from joblens.analysis.runs.status import run_label
    from joblens.analysis.runs.table import row_form
    from joblens.app.runs.datasets import failed_datasets, failed_form
    from joblens.app.runs.state import actions_form, failed_actions

    session.write_json(
        {
            "workflow_id": run.workflow_number,
            "run_id": run.number,
            "run_uuid": run.uuid,
            "run": run_label(run),
            "run_status": run.status.value,
            "results": [row_form(row) for row in rows],
            "failed_actions": actions_form(failed_actions(session.current_store, run.uuid)),
            "failed_datasets": failed_form(failed_datasets(session.current_store, run.uuid)),
        }
    )


def _write_document_and_table(session: Session, run: "Run") -> None:
    from joblens.app.runs.datasets import failed_datasets
    from joblens.app.runs.state import failed_actions
    from joblens.views.runs.results import render_actions, render_failed_datasets

    actions = failed_actions(session.current_store, run.uuid)
    if actions:
        session.write_lines(["", "Commands of actions:", *render_actions(actions, width=session.width)])
    datasets = [(one.name, one.error) for one in failed_datasets(session.current_store, run.uuid)]
    if datasets:
        session.write_lines(["", "Datasets:", *render_failed_datasets(datasets, width=session.width)])


def _none(states: tuple[str, ...], *, only_failed: bool) -> str:
    if states:
        return f"No job of this run is {' or '.join(states)}{' and has failed' if only_failed else ''}."
    return "No job of this run has failed." if only_failed else "The workflow has no jobs."


def _write_text(session: Session, rows: "list[ResultRow]", none: str) -> None:
    if not rows:
        session.write(f"{none}\n")
        return
    from joblens.views.runs.results import render_results

    width = session.width if session.is_terminal else None
    session.write_lines(render_results(rows, width=width, paint=session.palette))
    count = sum(row.kept_from is not None for row in rows)
    if count:
        from joblens.model.values.units import counted

        verb = "keeps its outcome" if count == 1 else "keep their outcomes"
        session.write(f"\n{counted(count, 'job')} {verb} of an earlier run.\n")
