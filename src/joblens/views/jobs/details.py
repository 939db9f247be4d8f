"""The main fields of one job: the text of `job-details`."""

from msgspec import json

from joblens.analysis.formats.history import returncode_of
from joblens.model.jobs.job import Record, Usage
from joblens.model.values.units import UNITS_NOTE, format_instant
from joblens.views.jobs.history import exact_memory, exact_seconds
from joblens.views.jobs.labels import started_at_us
from joblens.views.text.numbers import UNKNOWN
from joblens.views.text.style import clean, clean_lines

_NO_USAGE = Usage()


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
