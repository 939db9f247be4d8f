"""Workflows with how their last run stands, and one workflow with all its runs."""

from collections.abc import Sequence

from joblens.analysis.runs.workflow_rows import INTERRUPTED, RunRow, TaskGroupRow, WorkflowRow, run_label
from joblens.model.runs.run import RunStatus, Workflow
from joblens.model.values.units import format_duration, format_instant
from joblens.views.jobs.labels import ago
from joblens.views.text.numbers import UNKNOWN, counted
from joblens.views.text.style import Palette, clean
from joblens.views.text.table import Column, render_table

_COLOURS = {
    RunStatus.CREATED.value: "blue",
    RunStatus.RUNNING.value: "cyan",
    RunStatus.COMPLETED.value: "green",
    RunStatus.FAILED.value: "red",
    RunStatus.STOPPED.value: "yellow",
    INTERRUPTED: "yellow",
}
_WORKFLOWS = (
    Column("ID", is_right=True),
    Column("NAME", gives_way=True),
    Column("RUNS", is_right=True, goes=1),
    Column("LAST RUN"),
    Column("DONE", is_right=True),
    Column("FAILED", is_right=True),
    Column("LEFT", is_right=True),
    Column("WHEN", is_right=True, goes=2),
)
_RUNS = (
    Column("RUN"),
    Column("STATUS"),
    Column("DONE", is_right=True),
    Column("FAILED", is_right=True),
    Column("LEFT", is_right=True),
    Column("TOOK", is_right=True),
    Column("WHEN", is_right=True),
    Column("OUTPUT", gives_way=True),
)


def render_workflows(
    rows: Sequence[WorkflowRow],
    groups: Sequence[TaskGroupRow] = (),
    *,
    now_us: int,
    width: int,
    paint: Palette,
) -> list[str]:
    """Both kinds together, newest first."""
    cells = [(_began_at_us(row), _workflow_cells(row, now_us, paint)) for row in rows]
    cells += [(group.began_at_us, _group_cells(group, now_us, paint)) for group in groups]
    if groups:
        cells.sort(key=lambda each: each[0], reverse=True)
    return render_table(_WORKFLOWS, [each for _, each in cells], width, paint)


def _began_at_us(row: WorkflowRow) -> int:
    if row.last is None:
        return row.workflow.created_at_us
    return row.last.run.started_at_us or row.last.run.created_at_us


def _group_cells(group: TaskGroupRow, now_us: int, paint: Palette) -> list[str]:
    return [
        group.workflow_id,
        clean(group.name) or UNKNOWN,
        UNKNOWN,
        paint.paint(group.status.value, _COLOURS[group.status.value]),
        f"{group.done:,}",
        f"{group.failed:,}",
        f"{group.left:,}",
        ago(group.began_at_us, now_us),
    ]


def _workflow_cells(row: WorkflowRow, now_us: int, paint: Palette) -> list[str]:
    workflow, last = row.workflow, row.last
    number = UNKNOWN if workflow.number is None else str(workflow.number)
    head = [number, clean(workflow.name), str(row.runs)]
    if last is None:
        return [*head, "not run yet", UNKNOWN, UNKNOWN, UNKNOWN, ago(_began_at_us(row), now_us)]
    return [*head, _status(last, paint), *_counts(last), ago(_began_at_us(row), now_us)]


def render_workflow(
    workflow: Workflow, rows: Sequence[RunRow], *, now_us: int, width: int, paint: Palette
) -> list[str]:
    facts = [
        ("number", UNKNOWN if workflow.number is None else str(workflow.number)),
        ("uuid", workflow.uuid),
        ("description", clean(workflow.description)),
        ("file", clean(workflow.source)),
        ("user", clean(workflow.user)),
        ("created", format_instant(workflow.created_at_us)[:19]),
    ]
    lines = [
        f"{paint.paint(clean(workflow.name), 'bold')}, {counted(len(rows), 'run')}",
        *(f"  {paint.paint(f'{name:<11}', 'dim')}  {value}" for name, value in facts if value),
    ]
    if rows:
        table = render_table(_RUNS, [_run_cells(row, now_us, paint) for row in rows], width, paint)
        return [*lines, "", *table]
    return [*lines, "", f"Not run yet: joblens run-jobs {workflow.number}"]


def _run_cells(row: RunRow, now_us: int, paint: Palette) -> list[str]:
    run = row.run
    began_at_us = run.started_at_us or run.created_at_us
    return [
        run_label(run),
        _status(row, paint),
        *_counts(row),
        UNKNOWN if row.took_s is None else format_duration(row.took_s),
        ago(began_at_us, now_us),
        clean(run.options.output_dir),
    ]


def _status(row: RunRow, paint: Palette) -> str:
    return paint.paint(row.status, _COLOURS[row.status])


def _counts(row: RunRow) -> list[str]:
    return [f"{row.done:,}", f"{row.failed:,}", f"{row.left:,}"]
