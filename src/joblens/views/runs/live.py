"""Live view of a run: a bar per stage, running jobs, failures, time left."""

from collections.abc import Sequence
from typing import Any

from msgspec import to_builtins

from joblens.engine.progress.progress import JobFailure, RunProgress, StageProgress
from joblens.model.runs.run import JobState, RunStatus
from joblens.model.values.units import counted, format_duration, more
from joblens.views.text.charts import BAR_LEAST, BAR_MOST, bar, round_share
from joblens.views.text.numbers import UNKNOWN, clock, compact_bytes, percent
from joblens.views.text.style import Palette, clean, fit, pad, title_line, visible_width
from joblens.views.text.table import Column, render_table

_CANCELED = JobState.CANCELED.label  # spelled as in the tables of a run
_NAME_LEAST = 28
_FAILURES_SHOWN = 5
_COLUMNS = (
    Column("RUNNING", gives_way=True),
    Column("TIME", is_right=True, goes=2),
    Column("EXPECTED", is_right=True, goes=1),
    Column("CPU", is_right=True),
    Column("MEMORY", is_right=True, goes=3),
    Column("WHERE", gives_way=True, goes=4),
)
_STATUS_COLOURS = {
    RunStatus.RUNNING: "cyan",
    RunStatus.COMPLETED: "green",
    RunStatus.FAILED: "red",
    RunStatus.STOPPED: "yellow",
    RunStatus.CREATED: "blue",
}


def render_run_live(progress: RunProgress, *, width: int, height: int, paint: Palette) -> list[str]:
    """Returns at most `height` lines of at most `width` columns. Failures and bars come first, running jobs
    get the remaining lines; the rest is counted."""
    head = [_head(progress, width, paint)]
    machine = [line] if (line := _machine(progress, width, paint)) else []
    failures = _failures(progress.failures, width, paint, max(0, min(_FAILURES_SHOWN, height // 5)))
    message = [fit(clean(progress.message), width)] if progress.message else []
    fixed = len(head) + len(machine) + len(failures) + len(message)
    running_least = min(3, len(progress.running) + 1) if progress.running else 0
    stages = _stages(progress.stages, width, paint, max(1, height - fixed - running_least))
    lines_left = height - fixed - len(stages)
    running = _running(progress, width, paint, lines_left)
    return [*head, *stages, *machine, *running, *failures, *message][:height]


def _head(progress: RunProgress, width: int, paint: Palette) -> str:
    status = f"{progress.status.value} {clock(progress.elapsed_s)}"
    name = f"{clean(progress.name)}  run {progress.run}"
    options = [(name, rest) for rest in (eta(progress), _left(progress), "")]
    return title_line(options, status, _STATUS_COLOURS[progress.status], width, paint)


def eta(progress: RunProgress) -> str:
    """Returns 'about 05:10 left, from earlier runs'; '' if unknown or over."""
    left = _left(progress)
    return f"{left}, from {' and '.join(progress.estimate.sources)}" if left else ""


def _left(progress: RunProgress) -> str:
    estimate = progress.estimate
    if progress.status is not RunStatus.RUNNING or estimate.left_s is None or not estimate.sources:
        return ""
    if estimate.left_s < 1 or not progress.count("running"):
        return ""  # the waiting time on a cluster is unknown
    return f"{'at least' if estimate.unknown else 'about'} {clock(estimate.left_s)} left"


# ---- bars -----------------------------------------------------------------------------------------------


def _stages(stages: Sequence[StageProgress], width: int, paint: Palette, lines_left: int) -> list[str]:
    shown = [stage for stage in stages if stage.total]
    summary = []
    if len(shown) > lines_left:
        open_ones = [stage for stage in shown if _finished(stage) < stage.total]
        over = len(shown) - len(open_ones)
        shown_stages = open_ones[: max(0, lines_left - 1)]
        text = f"{over:,} of {len(shown):,} stages done, {len(open_ones) - len(shown_stages):,} more to come"
        summary = [paint.paint(fit(text, width), "dim")]
        shown = shown_stages
    names = [clean(stage.name) for stage in shown]
    digits = max((len(str(stage.total)) for stage in shown), default=0)
    counts = [_counts(stage, digits) for stage in shown]
    name_width = max((visible_width(name) for name in names), default=0)
    counts_width = max((visible_width(text) for text in counts), default=0)
    # The longest bar leaves the rest to names; if that is too little, the bar is shortened.
    least = min(name_width, _NAME_LEAST, width - counts_width - BAR_LEAST - 4)
    name_width = max(4, least, min(name_width, width - counts_width - BAR_MOST - 4))
    bar_width = min(BAR_MOST, width - name_width - counts_width - 4)
    lines = []
    for stage, name, text in zip(shown, names, counts, strict=True):
        parts = [pad(fit(name, name_width), name_width)]
        if bar_width >= BAR_LEAST:
            parts.append(_bar(stage, bar_width, paint))
        width_left = width - sum(visible_width(part) + 2 for part in parts)
        parts.append(fit(text, max(0, width_left)))
        lines.append("  ".join(parts).rstrip())
    return [*summary, *lines]


def _finished(stage: StageProgress) -> int:
    return stage.done + stage.failed + stage.cancelled


def _bar(stage: StageProgress, columns: int, paint: Palette) -> str:
    """Draws a bar. A failed or running job has at least one column; only a finished stage is full."""
    done, failed, running = stage.done, stage.failed + stage.cancelled, stage.running
    ends = [
        round_share(count, stage.total, columns) for count in (done, done + failed, done + failed + running)
    ]
    failed_columns = max(ends[1] - ends[0], 1 if failed else 0)
    running_columns = max(ends[2] - ends[0] - failed_columns, 1 if running else 0)
    return bar((ends[0], failed_columns, running_columns), columns, paint)


def _counts(stage: StageProgress, digits: int) -> str:
    parts = [pad(f"{stage.done:>{digits}}/{stage.total}", 2 * digits + 1)]
    for count, word in (
        (stage.failed, "failed"),
        (stage.cancelled, _CANCELED),
        (stage.running, "running"),
    ):
        if count:
            parts.append(f"{count} {word}")
    return "  ".join(parts)


# ---- machine, running jobs, failures -----------------------------------------------------------------------


def _machine(progress: RunProgress, width: int, paint: Palette) -> str:
    if progress.status is not RunStatus.RUNNING:
        return ""
    parts = []
    reserved, offered = progress.cpus
    if offered:
        parts.append(f"CPUs {reserved:g} of {offered:g}")
    memory, available = progress.memory_bytes
    if available:
        parts.append(f"memory {compact_bytes(memory)} of {compact_bytes(available)}")
    if progress.gpus[1]:
        parts.append(f"GPUs {progress.gpus[0]} of {progress.gpus[1]}")
    if not parts:
        return ""
    if progress.ready:
        parts.append(f"{progress.ready:,} ready")
    return paint.paint(fit(f"reserved: {', '.join(parts)}", width), "dim")


def _running(progress: RunProgress, width: int, paint: Palette, lines_left: int) -> list[str]:
    """Returns running jobs, the busiest first, as many as fit."""
    if not progress.running or lines_left < 2:
        return []
    ordered = sorted(progress.running, key=lambda job: (-(job.cpu_percent or 0.0), -job.elapsed_s))
    fitting = lines_left - 1
    shown = ordered if len(ordered) <= fitting else ordered[: fitting - 1]
    rows = [
        [
            clean(job.name) + _attempt(job.attempt),
            clock(job.elapsed_s),
            UNKNOWN if job.expected_s is None else clock(job.expected_s),
            percent(job.cpu_percent),
            compact_bytes(job.memory_bytes),
            clean(job.where),
        ]
        for job in shown
    ]
    columns: Sequence[Column] = _COLUMNS
    if not any(job.where for job in shown):
        columns, rows = _COLUMNS[:-1], [row[:-1] for row in rows]
    lines = render_table(columns, rows, width, paint)
    if len(shown) < len(ordered):
        lines.append(paint.paint(more(len(ordered) - len(shown)), "dim"))
    return lines


def _failures(failures: Sequence[JobFailure], width: int, paint: Palette, lines_left: int) -> list[str]:
    """Returns the last failures; earlier ones are printed above."""
    if not failures or not lines_left:
        return []
    shown = failures[-lines_left:]
    lines = [paint.paint(fit(failure_text(failure), width), "red") for failure in shown]
    if len(shown) < len(failures):
        rest = f"✗ … {counted(len(failures) - len(shown), 'earlier failure')}"
        lines = [paint.paint(fit(rest, width), "red"), *lines[1:]]
    return lines


def failure_text(failure: JobFailure) -> str:
    """Returns one line: the job, its number for `joblens logs`, the reason, and its last output."""
    parts = [f"✗ {clean(failure.name)}{_attempt(failure.attempt)}"]
    if failure.number is not None:
        parts[0] += f" (job {failure.number})"
    parts.append(clean(failure.reason))
    if failure.retry:
        parts[-1] += f", {clean(failure.retry)}"
    if failure.last_line.strip():
        parts.append(clean(failure.last_line.strip()))
    return ": ".join(parts)


def _attempt(number: int) -> str:
    return f" (attempt {number})" if number > 1 else ""


# ---- output that cannot be redrawn -------------------------------------------------------------------------


def summary_line(progress: RunProgress) -> str:
    """Returns '00:42  45 of 100 done, 2 failed, 8 running, about 01:10 left, from earlier runs'."""
    parts = [f"{progress.count('done'):,} of {progress.total:,} done"]
    words = {"failed": "failed", "cancelled": _CANCELED, "running": "running"}
    parts += [f"{count:,} {word}" for key, word in words.items() if (count := progress.count(key))]
    if rest := eta(progress):
        parts.append(rest)
    return f"{clock(progress.elapsed_s)}  {', '.join(parts)}"


def end_line(name: str, elapsed_s: float, duration_s: float, attempt: int = 1) -> str:
    return f"{clock(elapsed_s)}  ✓ {clean(name)}{_attempt(attempt)}: done in {format_duration(duration_s)}"


def failure_line(failure: JobFailure, elapsed_s: float) -> str:
    return f"{clock(elapsed_s)}  {failure_text(failure)}"


def note_line(text: str, elapsed_s: float) -> str:
    return f"{clock(elapsed_s)}  {clean(text)}"


def progress_form(progress: RunProgress) -> dict[str, Any]:
    """Returns the same for programs."""
    form: dict[str, Any] = to_builtins(progress)
    form["jobs"] = {
        "total": progress.total,
        "ready": form.pop("ready"),
        **{word: progress.count(word) for word in ("done", "failed", "cancelled", "running")},
    }
    is_unbounded = not form["cpus"][1]  # a cluster of unknown capacity
    for name in ("cpus", "memory_bytes", "gpus"):
        reserved, offered = form.pop(name)
        form[name] = {"reserved": reserved, "offered": None if is_unbounded and not offered else offered}
    return form
