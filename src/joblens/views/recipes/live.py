"""A recipe's job while it goes on: partitions as a bar, a line for each operator."""

from collections.abc import Sequence

from joblens.model.recipes.snapshot import JobSnapshot, OperatorProgress, ProcessingStatus
from joblens.views.runs.live import round_share
from joblens.views.text.numbers import UNKNOWN, clock, count, counted, percent, share
from joblens.views.text.style import Palette, clean, fit, visible_width
from joblens.views.text.table import Column, places_beside_whole_names, render_table

_DONE, _FAILED, _RUNNING, _LEFT = "━", "x", "─", "·"
_BAR_LEAST, _BAR_MOST = 8, 40
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
    """At most `height` lines of at most `width` columns; operators under way come before the others."""
    head = [_head(snapshot, name, elapsed_s, width, paint)]
    bar = [_partitions(snapshot, width, paint)] if snapshot.total_partitions else []
    room = height - len(head) - len(bar) - 1
    return [*head, *bar, *_operators(snapshot.operators, width, room, paint)][:height]


def progress_line(snapshot: JobSnapshot, elapsed_s: float) -> str:
    """Where nothing can be drawn in place."""
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
    for title, rest in (
        (f"{clean(name)}  {clean(snapshot.job_id)}", "  ".join(part for part in (speed, left) if part)),
        (clean(name), "  ".join(part for part in (speed, left) if part)),
        (clean(name), left),
        (clean(name), ""),
    ):
        if visible_width(title) + visible_width(status) + visible_width(rest) + 4 <= width:
            break
    title = fit(title, width - visible_width(status) - 2)
    painted = paint.paint(fit(status, width), STATUS_COLOURS.get(snapshot.overall_status, "cyan"))
    parts = (paint.paint(title, "bold"), painted, paint.paint(rest, "dim"))
    return "  ".join(part for part in parts if part)


def _partitions(snapshot: JobSnapshot, width: int, paint: Palette) -> str:
    total = snapshot.total_partitions
    running, waiting = _at_work(snapshot)
    words = [f"{snapshot.completed_partitions:,}/{total:,}"]
    for number, word in (
        (snapshot.failed_partitions, "failed"),
        (running, "running"),
        (waiting, "waiting"),
        (snapshot.retries, "tried again"),
    ):
        if number:
            words.append(f"{number:,} {word}")
    text = "  ".join(words)
    label = "partitions"
    bar = min(_BAR_MOST, width - len(label) - visible_width(text) - 4)
    if bar < _BAR_LEAST:
        return fit(f"{label}  {text}", width)
    return f"{label}  {_bar(snapshot, bar, paint)}  {text}"


def _at_work(snapshot: JobSnapshot) -> tuple[int, int]:
    """Partitions that workers have, and those that were begun and wait: for the others, or for a worker."""
    begun, waiting = snapshot.in_progress_partitions, snapshot.waiting_partitions
    in_operators = sum(each.in_progress for each in snapshot.operators)
    first = snapshot.operators[0] if snapshot.operators else None
    is_all_read = first is not None and first.completed >= first.planned
    if is_all_read and in_operators:  # else some of them may just be read, which is no operator
        waiting = max(waiting, begun - in_operators)
    return begun - waiting, waiting


def _bar(snapshot: JobSnapshot, columns: int, paint: Palette) -> str:
    """By the operations that are through: a bar of partitions alone would stand still for long."""
    done = round_share(round(1000 * snapshot.overall_fraction), 1000, columns)
    failed = 1 if snapshot.failed_partitions else 0
    running = 1 if snapshot.in_progress_partitions else 0
    done = min(done, columns - failed - running)
    left = columns - done - failed - running
    return (
        paint.paint(_DONE * done, "green")
        + paint.paint(_FAILED * failed, "red")
        + paint.paint(_RUNNING * running, "cyan")
        + paint.paint(_LEFT * left, "dim")
    )


def _operators(operators: Sequence[OperatorProgress], width: int, room: int, paint: Palette) -> list[str]:
    if room < 1 or not operators:
        return []
    shown = _in_sight(operators, room)
    left_out = len(operators) - len(shown)
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
    told = [place for place in range(len(_OPERATOR_COLUMNS)) if any(row[place] for row in rows)]
    kept = places_beside_whole_names(_OPERATOR_COLUMNS, told, rows, width)
    columns = [_OPERATOR_COLUMNS[place] for place in kept]
    lines = render_table(columns, [[row[place] for place in kept] for row in rows], width, paint)
    return [*lines, paint.paint(fit(f"… {left_out:,} more", width), "dim")] if left_out else lines


def _done(progress: OperatorProgress, paint: Palette) -> str:
    text = f"{progress.completed:,}/{progress.planned:,}"
    if progress.in_progress:
        return paint.paint(text, "cyan")
    return paint.paint(text, "green") if progress.completed >= progress.planned else text


def _in_sight(operators: Sequence[OperatorProgress], room: int) -> list[OperatorProgress]:
    """All of them, or those around where the work is."""
    if len(operators) <= room:
        return list(operators)
    at_work = [place for place, each in enumerate(operators) if each.in_progress]
    unfinished = [place for place, each in enumerate(operators) if each.completed < each.planned]
    centres = at_work or unfinished[:1] or [len(operators) - 1]
    near = sorted(range(len(operators)), key=lambda place: min(abs(place - centre) for centre in centres))
    return [operators[place] for place in sorted(near[: max(1, room - 1)])]  # a line says that there are more


def _per_second(progress: OperatorProgress) -> str:
    rate = progress.rows_per_second
    return UNKNOWN if rate is None else f"{rate:,.0f}"
