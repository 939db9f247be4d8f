"""Workflows with their runs, and the datasets of a run."""

from collections.abc import Sequence
from typing import Any

from joblens.analysis.runs.status import INTERRUPTED, RunRow, TaskGroupRow, WorkflowRow, run_label
from joblens.model.runs.run import RunStatus, Workflow
from joblens.model.values.units import counted, format_bytes, format_duration, format_instant, listed
from joblens.views.jobs.labels import ago
from joblens.views.text.numbers import UNKNOWN, iso_instant
from joblens.views.text.style import PLAIN, Palette, clean
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
    """Formats workflows and task groups, newest first."""
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
        ("created", iso_instant(workflow.created_at_us)),
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
        format_duration(row.took_s),
        ago(began_at_us, now_us),
        clean(run.options.output_dir),
    ]


def _status(row: RunRow, paint: Palette) -> str:
    return paint.paint(row.status, _COLOURS[row.status])


def _counts(row: RunRow) -> list[str]:
    return [f"{row.done:,}", f"{row.failed:,}", f"{row.left:,}"]


_DATASETS_COLOURS = {"pending": "blue", "finalizing": "cyan", "finalized": "green", "failed": "red"}
_COLUMNS = (
    Column("DATASET", gives_way=True),
    Column("STATUS"),
    Column("MADE BY", is_right=True, goes=2),
    Column("FILES", is_right=True),
    Column("SIZE", is_right=True),
    Column("HASH", goes=1),
    Column("PATH", gives_way=True, least=10),
)
_SHORT_HASH = 12


def render_datasets(rows: Sequence[dict[str, Any]], *, width: int, paint: Palette = PLAIN) -> list[str]:
    """Formats datasets. `rows`: as in `--json`."""
    table = [
        [
            clean(row["name"]),
            paint.paint(row["status"], _DATASETS_COLOURS.get(row["status"], "bold")),
            f"{row['producers_done']}/{row['producers']}" if row["producers"] else UNKNOWN,
            UNKNOWN if row["files"] is None else f"{row['files']:,}",
            format_bytes(row["bytes"]),
            _hash(row),
            clean(row["path"]),
        ]
        for row in rows
    ]
    lines = render_table(_COLUMNS, table, width, paint)
    return [*lines, *(f"  {clean(row['name'])}: {clean(row['error'])}" for row in rows if row["error"])]


def _hash(row: dict[str, Any]) -> str:
    return f"{row['hash_mode']} {(row['sha256'] or '')[:_SHORT_HASH]}".rstrip()


def render_dataset(row: dict[str, Any], paint: Palette = PLAIN) -> list[str]:
    """Formats one dataset. `row`: as in `datasets show --json`."""
    made_by = (
        f"{row['producers_done']} of {len(row['producers'])} jobs done" if row["producers"] else "no job"
    )
    facts = {
        "path": clean(row["path"]),
        "status": paint.paint(row["status"], _DATASETS_COLOURS.get(row["status"], "bold")),
        "error": clean(row["error"] or ""),
        "description": clean(row["description"]),
        "files": "" if row["files"] is None else f"{row['files']:,}",
        "size": "" if row["bytes"] is None else f"{format_bytes(row['bytes'])} ({row['bytes']:,} bytes)",
        "hash mode": row["hash_mode"],
        "sha256": row["sha256"] or "",
        "finalized": "" if row["finalized_at_us"] is None else format_instant(row["finalized_at_us"]),
        "hashed in": "" if row["duration_s"] is None else format_duration(row["duration_s"]),
        "made by": _with_names(made_by, row["producers"]),
        "read by": _with_names("", row["readers"]),
    }
    return [clean(row["name"]), *(f"  {name:<12}{value}" for name, value in facts.items() if value)]


def _with_names(text: str, names: Sequence[str], most: int = 5) -> str:
    shown = listed(names, most, clean)
    return f"{text}: {shown}" if text and shown else text or shown
