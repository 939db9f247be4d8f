"""Snapshot of a recipe's job as text: the live view, and the full report."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from joblens.model.recipes.snapshot import (
    JobSnapshot,
    OperatorProgress,
    PartitionStatus,
    ProcessingStatus,
    StepProgress,
)
from joblens.model.values.units import counted, format_bytes, format_duration, more
from joblens.views.jobs.recipe_operators import BEFORE_OPERATORS, step_name
from joblens.views.text.charts import BAR_LEAST, BAR_MOST, bar, round_share
from joblens.views.text.numbers import UNKNOWN, clock, count, instant, percent, share
from joblens.views.text.style import (
    Palette,
    clean,
    clean_lines,
    fit,
    pad,
    title_line,
    visible_width,
    wrap_beside,
)
from joblens.views.text.table import Column, columns_that_fit, render_table

_OPERATOR_COLUMNS = (
    Column("OPERATOR", gives_way=True, least=16),
    Column("DONE", is_right=True),
    Column("ROWS IN", is_right=True, goes=2),
    Column("ROWS OUT", is_right=True, goes=3),
    Column("KEPT", is_right=True),
    Column("ROWS/S", is_right=True, goes=4),
    Column("REJECTED", is_right=True, goes=1),
)
STATUS_COLOURS = {
    ProcessingStatus.COMPLETED: "green",
    ProcessingStatus.FAILED: "red",
    ProcessingStatus.KILLED: "red",
    ProcessingStatus.PARTIAL: "yellow",
    ProcessingStatus.STOPPED: "yellow",
}


def render_recipe_live(
    snapshot: JobSnapshot, name: str, *, elapsed_s: float, width: int, height: int, paint: Palette
) -> list[str]:
    """Returns at most `height` lines of at most `width` columns; active operators come first."""
    head = [_head(snapshot, name, elapsed_s, width, paint)]
    bar = [_partitions(snapshot, width, paint)] if snapshot.total_partitions else []
    lines_left = height - len(head) - len(bar) - 1
    return [*head, *bar, *_operators(snapshot.operators, width, lines_left, paint)][:height]


def progress_line(snapshot: JobSnapshot, elapsed_s: float) -> str:
    """Formats progress for output that cannot be redrawn."""
    done = counted(snapshot.completed_partitions, "partition")
    parts = [
        f"{clock(elapsed_s)}  {percent(100 * snapshot.overall_fraction)}",
        f"{done} of {snapshot.total_partitions:,}",
    ]
    rows = snapshot.rows_in
    if rows is not None:
        parts.append(f"{rows:,} rows in")
    if snapshot.failed_partitions:
        parts.append(f"{snapshot.failed_partitions:,} failed")
    if snapshot.eta_seconds is not None:
        parts.append(f"about {clock(snapshot.eta_seconds)} left")
    return ", ".join(parts)


def keep_rate(progress: OperatorProgress) -> str:
    rate = progress.keep_rate
    return UNKNOWN if rate is None else share(rate)


def _head(snapshot: JobSnapshot, name: str, elapsed_s: float, width: int, paint: Palette) -> str:
    is_over = snapshot.overall_status in STATUS_COLOURS
    state = str(snapshot.overall_status) if is_over else "exporting" if snapshot.is_exporting else "running"
    status = f"{state} {clock(elapsed_s)}"
    rows = snapshot.rows_in
    speed = "" if not rows or elapsed_s < 1 else f"{rows / elapsed_s:,.0f} rows/s"
    left = "" if is_over or snapshot.eta_seconds is None else f"about {clock(snapshot.eta_seconds)} left"
    title, rest = clean(name), "  ".join(part for part in (speed, left) if part)
    options = [(f"{title}  {clean(snapshot.job_id)}", rest), (title, rest), (title, left), (title, "")]
    return title_line(options, status, STATUS_COLOURS.get(snapshot.overall_status, "cyan"), width, paint)


def _partitions(snapshot: JobSnapshot, width: int, paint: Palette) -> str:
    total = snapshot.total_partitions
    running, waiting = _at_work(snapshot)
    words = [f"{snapshot.completed_partitions:,}/{total:,}"]
    for number, word in (
        (snapshot.failed_partitions, "failed"),
        (running, "running"),
        (waiting, "waiting"),
        (snapshot.retries, "retried"),
    ):
        if number:
            words.append(f"{number:,} {word}")
    text = "  ".join(words)
    label = "partitions"
    bar_width = min(BAR_MOST, width - len(label) - visible_width(text) - 4)
    if bar_width < BAR_LEAST:
        return fit(f"{label}  {text}", width)
    return f"{label}  {_bar(snapshot, bar_width, paint)}  {text}"


def _at_work(snapshot: JobSnapshot) -> tuple[int, int]:
    """Returns partitions in workers, and started ones that wait for others or for a worker."""
    begun, waiting = snapshot.in_progress_partitions, snapshot.waiting_partitions
    in_operators = sum(each.in_progress for each in snapshot.operators)
    first = snapshot.operators[0] if snapshot.operators else None
    is_all_read = first is not None and first.completed >= first.planned
    if is_all_read and in_operators:  # otherwise some may be reading, which is not an operator
        waiting = max(waiting, begun - in_operators)
    return begun - waiting, waiting


def _bar(snapshot: JobSnapshot, columns: int, paint: Palette) -> str:
    """Draws a bar of finished operations: a bar of partitions would not move for long."""
    done = round_share(round(1000 * snapshot.overall_fraction), 1000, columns)
    failed = 1 if snapshot.failed_partitions else 0
    return bar((done, failed, 1 if snapshot.in_progress_partitions else 0), columns, paint)


def _operators(
    operators: Sequence[OperatorProgress], width: int, lines_left: int, paint: Palette
) -> list[str]:
    if lines_left < 1 or not operators:
        return []
    shown = _around_current(operators, lines_left)
    hidden = len(operators) - len(shown)
    rows = [
        [
            clean(each.operation_name),
            _done(each, paint),
            count(each.input_rows),
            count(each.output_rows),
            keep_rate(each),
            _per_second(each),
            f"{each.rejected_rows:,}" if each.rejected_rows else "",
        ]
        for each in shown
    ]
    used_columns = [index for index in range(len(_OPERATOR_COLUMNS)) if any(row[index] for row in rows)]
    fitting = columns_that_fit(_OPERATOR_COLUMNS, used_columns, rows, width, whole_names=True)
    lines = render_table(_OPERATOR_COLUMNS, rows, width, paint, indexes=fitting)
    return [*lines, paint.paint(fit(more(hidden), width), "dim")] if hidden else lines


def _done(progress: OperatorProgress, paint: Palette) -> str:
    text = f"{progress.completed:,}/{progress.planned:,}"
    if progress.in_progress:
        return paint.paint(text, "cyan")
    return paint.paint(text, "green") if progress.completed >= progress.planned else text


def _around_current(operators: Sequence[OperatorProgress], lines_left: int) -> list[OperatorProgress]:
    """Returns the operators around the current one, as many as fit."""
    if len(operators) <= lines_left:
        return list(operators)
    at_work = [index for index, each in enumerate(operators) if each.in_progress]
    unfinished = [index for index, each in enumerate(operators) if each.completed < each.planned]
    centres = at_work or unfinished[:1] or [len(operators) - 1]
    near = sorted(range(len(operators)), key=lambda index: min(abs(index - centre) for centre in centres))
    most = max(1, lines_left - 1)  # the last line counts the others
    return [operators[index] for index in sorted(near[:most])]


def _per_second(progress: OperatorProgress) -> str:
    rate = progress.rows_per_second
    return UNKNOWN if rate is None else f"{rate:,.0f}"


_MOST_PARTITIONS = 10  # listed individually
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
    word = paint.paint(_status_text(status), STATUS_COLOURS.get(status, "cyan"), "bold")
    lines = [f"{paint.paint(clean(snapshot.job_id), 'bold')}  {word}"]
    for label, text in _facts(snapshot):
        lines += _wrapped(label, text, width)
    if snapshot.error_message:
        lines += _wrapped("error", last_line(snapshot.error_message), width)
    if snapshot.operators:
        lines += ["", *_operator_table(snapshot, width, paint)]
    return [*lines, *_unfinished_partitions(snapshot, width)]


def _wrapped(label: str, text: str, width: int) -> list[str]:
    return wrap_beside(pad(label, _LABEL), text, max(2 * _LABEL, width)) if text else []


def _status_text(status: ProcessingStatus) -> str:
    return {
        ProcessingStatus.IN_PROGRESS: "running",
        ProcessingStatus.NOT_STARTED: "not started",
        ProcessingStatus.KILLED: "killed: its process ended without a final status",
        ProcessingStatus.PARTIAL: "partial: some partitions failed",
    }.get(status, status.value)


def last_line(message: str) -> str:
    """Returns the last line of a traceback, which has the error."""
    lines = [line.strip() for line in clean_lines(message) if line.strip()]
    errors = [line for line in lines if "Error: " in line or "Exception: " in line]
    own = [line for line in errors if not line.startswith("ray.exceptions.")]  # a wrapper around the error
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
        yield "event log", f"{counted(snapshot.malformed_lines, 'unreadable line')}"


def _runs(snapshot: JobSnapshot) -> str:
    return "" if snapshot.runs < 2 else f", resumed {counted(snapshot.runs - 1, 'time')}"


def _progress(snapshot: JobSnapshot) -> str:
    parts = [
        percent(100 * snapshot.overall_fraction),
        f"{snapshot.completed_partitions:,} of {counted(snapshot.total_partitions, 'partition')}",
        f"{snapshot.completed_operations:,} of {counted(snapshot.total_operations, 'operation')}",
    ]
    for number, word in (
        (snapshot.in_progress_partitions - snapshot.waiting_partitions, "running"),
        (snapshot.waiting_partitions, "waiting for other partitions"),
        (snapshot.failed_partitions, "failed"),
        (snapshot.retries, "retried"),
    ):
        if number:
            parts.append(f"{counted(number, 'partition')} {word}")
    return ", ".join(parts)


def _checkpoints(snapshot: JobSnapshot) -> str:
    status, fitting = snapshot.overall_status, snapshot.checkpointed_operations
    is_ahead = status in (ProcessingStatus.IN_PROGRESS, ProcessingStatus.NOT_STARTED)
    text = snapshot.checkpoint_strategy or "strategy unknown"
    if not fitting:
        text += ", none yet" if is_ahead else ", none"
    else:
        text += f", {fitting:,} kept"
        if snapshot.last_checkpoint_time is not None:
            text += f", last {_moment(snapshot.last_checkpoint_time)}"
    if (is_ahead and not fitting) or status is ProcessingStatus.COMPLETED:
        return text
    if snapshot.resumable:
        return f"{text}, can be resumed"
    return f"{text}, none left" if fitting else text


def _moment(seconds: float) -> str:
    return instant(int(seconds) * 1_000_000)


def _operator_table(snapshot: JobSnapshot, width: int, paint: Palette) -> list[str]:
    """Formats the operators without empty columns."""
    rows = [_step_cells(one) for one in snapshot.steps if one.name in BEFORE_OPERATORS]
    rows += [_operator_cells(one) for one in snapshot.operators]
    rows += [_step_cells(one) for one in snapshot.steps if one.name not in BEFORE_OPERATORS]
    fitting = [
        index for index in range(len(_COLUMNS)) if any(row[index] not in ("", UNKNOWN) for row in rows)
    ]
    return render_table(_COLUMNS, rows, width, paint, indexes=fitting)


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


def _unfinished_partitions(snapshot: JobSnapshot, width: int) -> list[str]:
    """Lists failed, running, interrupted and retried partitions."""
    used_columns = (ProcessingStatus.FAILED, ProcessingStatus.IN_PROGRESS, ProcessingStatus.INTERRUPTED)
    shown = [
        one for one in snapshot.partition_statuses.values() if one.status in used_columns or one.retry_count
    ]
    shown.sort(key=lambda one: (one.status is not ProcessingStatus.FAILED, one.is_waiting, one.partition_id))
    lines = [fit(_partition_line(one), width) for one in shown[:_MOST_PARTITIONS]]
    if len(shown) > _MOST_PARTITIONS:
        lines.append(more(len(shown) - _MOST_PARTITIONS, "partition"))
    return ["", *lines] if lines else []


def _partition_line(one: PartitionStatus) -> str:
    word = "waiting for other partitions" if one.is_waiting else one.status.value.replace("_", " ")
    parts = [f"partition {one.partition_id}: {word}", share(one.fraction)]
    if one.failed_operations:
        parts.append(f"at {clean(one.failed_operations[-1])}")
    elif one.current_operation:
        parts.append(f"at {clean(one.current_operation)}")
    if one.retry_count:
        parts.append(f"retried {counted(one.retry_count, 'time')}")
    if one.error_message:
        parts.append(last_line(one.error_message))
    return ", ".join(parts)


def render_job_list(jobs: Sequence[Mapping[str, Any]], *, width: int, paint: Palette) -> list[str]:
    """Formats jobs from `JobUtils.list_jobs`."""
    if not jobs:
        return ["no jobs"]
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
