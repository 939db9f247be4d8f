"""Where a recipe's job stands, for people."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from joblens.model.recipes.snapshot import (
    JobSnapshot,
    OperatorProgress,
    PartitionStatus,
    ProcessingStatus,
    StepProgress,
)
from joblens.model.values.units import format_bytes, format_duration
from joblens.views.jobs.recipe_operators import BEFORE_OPERATORS, step_name
from joblens.views.recipes.live import STATUS_COLOURS, keep_rate
from joblens.views.text.numbers import UNKNOWN, count, counted, percent, share
from joblens.views.text.style import Palette, clean, clean_lines, fit
from joblens.views.text.table import Column, render_table

_MOST_PARTITIONS = 10  # that are named one by one
_LABEL = 12
_COLUMNS = (
    Column("OPERATOR", gives_way=True, least=16),
    Column("DONE", is_right=True),
    Column("ROWS IN", is_right=True, goes=3),
    Column("ROWS OUT", is_right=True, goes=4),
    Column("KEPT", is_right=True),
    Column("TIME", is_right=True),
    Column("CPU", is_right=True, goes=2),
    Column("MEMORY", is_right=True, goes=1),
    Column("REJECTED", is_right=True, goes=1),
)


def render_snapshot(snapshot: JobSnapshot, *, width: int, paint: Palette) -> list[str]:
    status = snapshot.overall_status
    word = paint.paint(_words(status), STATUS_COLOURS.get(status, "cyan"), "bold")
    lines = [f"{paint.paint(clean(snapshot.job_id), 'bold')}  {word}"]
    for label, text in _facts(snapshot):
        lines += _wrapped(label, text, width)
    if snapshot.error_message:
        lines += _wrapped("error", last_line(snapshot.error_message), width)
    if snapshot.operators:
        lines += ["", *_operators(snapshot, width, paint)]
    return [*lines, *_partitions(snapshot, width)]


def _wrapped(label: str, text: str, width: int) -> list[str]:
    import textwrap

    room = max(_LABEL, width - _LABEL)
    parts = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)
    return [f"{'' if number else label:<{_LABEL}}{part}" for number, part in enumerate(parts)]


def _words(status: ProcessingStatus) -> str:
    return {
        ProcessingStatus.IN_PROGRESS: "running",
        ProcessingStatus.NOT_STARTED: "not started",
        ProcessingStatus.KILLED: "killed: its process is gone, and it never told how it ended",
        ProcessingStatus.PARTIAL: "partial: it ended without some of its partitions",
    }.get(status, status.value)


def last_line(message: str) -> str:
    """What a traceback ends with is what went wrong."""
    lines = [line.strip() for line in clean_lines(message) if line.strip()]
    errors = [line for line in lines if "Error: " in line or "Exception: " in line]
    own = [line for line in errors if not line.startswith("ray.exceptions.")]  # it wraps what went wrong
    return (own or errors or lines or [""])[-1]


def _facts(snapshot: JobSnapshot) -> Iterator[tuple[str, str]]:
    if snapshot.job_start_time is not None:
        yield "started", f"{_moment(snapshot.job_start_time)}{_runs(snapshot)}"
    if snapshot.total_duration is not None:
        is_running = snapshot.overall_status is ProcessingStatus.IN_PROGRESS
        text = f"{format_duration(snapshot.total_duration)}{' so far' if is_running else ''}"
        if snapshot.eta_seconds is not None:
            text += f", about {format_duration(snapshot.eta_seconds)} left"
        yield "time", text
    yield "progress", _progress(snapshot)
    yield "checkpoints", _checkpoints(snapshot)
    if snapshot.rejected_rows:
        yield "rejected", counted(snapshot.rejected_rows, "row")
    if snapshot.export_path:
        yield "output", clean(snapshot.export_path)
    if snapshot.malformed_lines:
        yield "event log", f"{counted(snapshot.malformed_lines, 'line')} could not be read"


def _runs(snapshot: JobSnapshot) -> str:
    return "" if snapshot.runs < 2 else f", gone on with {counted(snapshot.runs - 1, 'time')}"


def _progress(snapshot: JobSnapshot) -> str:
    parts = [
        percent(100 * snapshot.overall_fraction),
        f"{snapshot.completed_partitions:,} of {counted(snapshot.total_partitions, 'partition')}",
        f"{snapshot.completed_operations:,} of {counted(snapshot.total_operations, 'operation')}",
    ]
    for number, word in (
        (snapshot.in_progress_partitions - snapshot.waiting_partitions, "under way"),
        (snapshot.waiting_partitions, "waiting for the others"),
        (snapshot.failed_partitions, "failed"),
        (snapshot.retries, "tried again"),
    ):
        if number:
            parts.append(f"{counted(number, 'partition')} {word}")
    return ", ".join(parts)


def _checkpoints(snapshot: JobSnapshot) -> str:
    status, kept = snapshot.overall_status, snapshot.checkpointed_operations
    is_ahead = status in (ProcessingStatus.IN_PROGRESS, ProcessingStatus.NOT_STARTED)
    text = snapshot.checkpoint_strategy or "strategy not known"
    if not kept:
        text += ", none yet" if is_ahead else ", none"
    else:
        text += f", {kept:,} kept"
        if snapshot.last_checkpoint_time is not None:
            text += f", last {_moment(snapshot.last_checkpoint_time)}"
    if (is_ahead and not kept) or status is ProcessingStatus.COMPLETED:
        return text
    if snapshot.resumable:
        return f"{text}, can be gone on with"
    return f"{text}, none of them there any more" if kept else text


def _moment(seconds: float) -> str:
    from datetime import UTC, datetime

    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _operators(snapshot: JobSnapshot, width: int, paint: Palette) -> list[str]:
    """Without columns that have nothing to show."""
    rows = [_step_cells(one) for one in snapshot.steps if one.name in BEFORE_OPERATORS]
    rows += [_operator_cells(one) for one in snapshot.operators]
    rows += [_step_cells(one) for one in snapshot.steps if one.name not in BEFORE_OPERATORS]
    kept = [place for place in range(len(_COLUMNS)) if any(row[place] not in ("", UNKNOWN) for row in rows)]
    columns = [_COLUMNS[place] for place in kept]
    return render_table(columns, [[row[place] for place in kept] for row in rows], width, paint)


def _step_cells(one: StepProgress) -> list[str]:
    return [
        step_name(one.name),
        "",
        "",
        "",
        "",
        format_duration(one.wall_seconds),
        format_duration(one.cpu_seconds),
        format_bytes(one.memory_peak_bytes),
        "",
    ]


def _operator_cells(one: OperatorProgress) -> list[str]:
    return [
        clean(one.operation_name),
        f"{one.completed:,}/{one.planned:,}",
        count(one.input_rows),
        count(one.output_rows),
        keep_rate(one),
        format_duration(one.duration_seconds or None),
        format_duration(one.cpu_seconds),
        format_bytes(one.memory_peak_bytes),
        count(one.rejected_rows) if one.rejected_rows else "",
    ]


def _partitions(snapshot: JobSnapshot, width: int) -> list[str]:
    """Those that are not simply done or waiting."""
    told = (ProcessingStatus.FAILED, ProcessingStatus.IN_PROGRESS, ProcessingStatus.INTERRUPTED)
    shown = [one for one in snapshot.partition_statuses.values() if one.status in told or one.retry_count]
    shown.sort(key=lambda one: (one.status is not ProcessingStatus.FAILED, one.is_waiting, one.partition_id))
    lines = [fit(_partition_line(one), width) for one in shown[:_MOST_PARTITIONS]]
    if len(shown) > _MOST_PARTITIONS:
        lines.append(f"… and {len(shown) - _MOST_PARTITIONS:,} more partitions like these")
    return ["", *lines] if lines else []


def _partition_line(one: PartitionStatus) -> str:
    word = "waiting for the others" if one.is_waiting else one.status.value.replace("_", " ")
    parts = [f"partition {one.partition_id}: {word}", share(one.fraction)]
    if one.failed_operations:
        parts.append(f"at {clean(one.failed_operations[-1])}")
    elif one.current_operation:
        parts.append(f"at {clean(one.current_operation)}")
    if one.retry_count:
        parts.append(f"tried again {counted(one.retry_count, 'time')}")
    if one.error_message:
        parts.append(last_line(one.error_message))
    return ", ".join(parts)


def render_job_list(jobs: Sequence[Mapping[str, Any]], *, width: int, paint: Palette) -> list[str]:
    """Jobs as `JobUtils.list_jobs` tells them."""
    if not jobs:
        return ["no jobs there"]
    columns = (
        Column("JOB", gives_way=True, least=16),
        Column("STATUS"),
        Column("STARTED", goes=1),
        Column("TIME", is_right=True, goes=2),
        Column("PROGRESS", is_right=True),
    )
    rows = [
        [
            clean(job["job_id"]),
            paint.paint(job["status"], STATUS_COLOURS.get(job["status"], "cyan")),
            UNKNOWN if job["start_time"] is None else _moment(job["start_time"]),
            format_duration(job["duration"]),
            percent(job["progress_percentage"]),
        ]
        for job in jobs
    ]
    return render_table(columns, rows, width, paint)
