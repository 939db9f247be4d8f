"""History of jobs: a compact table, a paragraph per job, and the main fields of one."""

from collections.abc import Sequence

from msgspec import json

from joblens.analysis.formats.history import returncode_of
from joblens.model.jobs.job import Job, Record, Usage
from joblens.model.values.ids import short
from joblens.model.values.units import UNITS_NOTE, format_duration, format_instant, in_mb
from joblens.views.jobs.labels import (
    ago,
    compact_cpu,
    compact_io,
    compact_memory,
    duration_s,
    name_with_attempt,
    started_at_us,
)
from joblens.views.text.numbers import UNKNOWN
from joblens.views.text.style import Palette, clean, clean_lines, fit
from joblens.views.text.table import Column, render_table

_COLUMNS = (
    Column("ID"),
    Column("#", is_right=True, goes=2),
    Column("NAME", gives_way=True, keeps_end=True),
    Column("STATUS"),
    Column("STARTED", is_right=True, goes=3),
    Column("TOOK", is_right=True, goes=6),
    Column("CPU", is_right=True, goes=4),
    Column("MEMORY", is_right=True, goes=5),
    Column("I/O", is_right=True, goes=1),
)
_NO_USAGE = Usage()
_UUID_SHOWN = 12
_ERROR_SHOWN = 100


def render_history(records: Sequence[Record], *, now_us: int, width: int, paint: Palette) -> list[str]:
    return render_table(_COLUMNS, [_row(record, now_us, paint) for record in records], width, paint)


def _row(record: Record, now_us: int, paint: Palette) -> list[str]:
    usage = record.outcome.usage if record.outcome is not None else _NO_USAGE
    return [
        short(record.job.uuid),
        UNKNOWN if record.number is None else str(record.number),
        name_with_attempt(record),
        paint.status(record.status),
        ago(started_at_us(record), now_us),
        format_duration(duration_s(record, now_us)),
        compact_cpu(usage),
        compact_memory(usage),
        compact_io(usage),
    ]


def render_job_history(records: Sequence[Record]) -> list[str]:
    """Returns the text of `job-history`."""
    noun = "job" if len(records) == 1 else "jobs"
    lines = [f"Job History (showing {len(records)} {noun}):"]
    for number, record in enumerate(records, start=1):
        lines += ["", *_paragraph(number, record)]
    return [*lines, "", UNITS_NOTE]


def _paragraph(number: int, record: Record) -> list[str]:
    job, outcome = record.job, record.outcome
    usage = outcome.usage if outcome is not None else _NO_USAGE
    lines = [
        f"{number}. Task: {_task_id(job)}",
        f"   Tool: {clean(job.tool) or UNKNOWN}, Script: {clean(job.script) or UNKNOWN}",
        f"   Status: {record.status.value.upper()}",
        f"   Started: {format_instant(started_at_us(record))}",
        f"   Duration: {exact_seconds(None if outcome is None else outcome.duration_s)}",
        f"   CPU Time: {_cpu_split(usage)}",
        f"   Memory Peak: {exact_memory(usage)}",
    ]
    if outcome is not None and outcome.error:
        lines.append(f"   Error: {_short_error(outcome.error)}")
    return lines


def _task_id(job: Job) -> str:
    """Returns the job's own id, otherwise a prefix of its UUID that is long enough to find it."""
    return clean(job.external_id) if job.external_id else f"{job.uuid[:_UUID_SHOWN]}..."


def _short_error(error: str) -> str:
    line = clean(" ".join(error.split()))
    return fit(line, _ERROR_SHOWN)[:-1] + "..." if len(line) > _ERROR_SHOWN else line


def _cpu_split(usage: Usage) -> str:
    if usage.cpu_total_usec is None:
        return "unknown"
    total = exact_seconds(usage.cpu_total_usec / 1e6)
    if usage.cpu_user_usec is None or usage.cpu_system_usec is None:
        return total
    user, system = usage.cpu_user_usec / 1e6, usage.cpu_system_usec / 1e6
    return f"{total} (user: {exact_seconds(user)}, system: {exact_seconds(system)})"


def exact_seconds(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"{seconds:.2f}s"


def exact_memory(usage: Usage) -> str:
    peak, summed = in_mb(usage.memory_peak_bytes), in_mb(usage.memory_rss_sum_peak_bytes)
    if peak is None:
        return "unknown" if summed is None else f"unknown (peak of summed RSS: {summed:.2f} MB)"
    return f"{peak:.2f} MB"


def render_job_details(record: Record) -> list[str]:
    job, outcome = record.job, record.outcome
    usage = outcome.usage if outcome is not None else _NO_USAGE
    returncode = returncode_of(outcome) if outcome is not None else None
    lines = [
        f"Job Details: {clean(job.external_id or job.uuid)}",
        "",
        "Basic Information:",
        f"  Tool: {clean(job.tool) or UNKNOWN}",
        f"  Script: {clean(job.script) or UNKNOWN}",
        f"  Status: {record.status.value.upper()}",
        f"  Return Code: {UNKNOWN if returncode is None else returncode}",
        "",
        "Timing:",
        f"  Started: {format_instant(started_at_us(record))}",
        f"  Ended: {UNKNOWN if outcome is None else format_instant(outcome.ended_at_us)}",
        f"  Duration: {exact_seconds(None if outcome is None else outcome.duration_s)}",
        "",
        "Parameters:",
        *_parameters(record),
        "",
        "Resource Usage:",
        f"  CPU User Time: {_seconds(usage.cpu_user_usec)}",
        f"  CPU System Time: {_seconds(usage.cpu_system_usec)}",
        f"  CPU Total Time: {_seconds(usage.cpu_total_usec)}",
        f"  Memory Peak: {exact_memory(usage)}",
    ]
    if outcome is not None and outcome.error:
        lines += ["", "Error:", *(f"  {line}" for line in clean_lines(outcome.error.rstrip()))]
    return [*lines, "", UNITS_NOTE]


def _parameters(record: Record) -> list[str]:
    text = json.format(json.encode(record.job.params), indent=2).decode()
    return [f"  {line}" for line in text.split("\n")]


def _seconds(usec: int | None) -> str:
    return exact_seconds(None if usec is None else usec / 1e6)
